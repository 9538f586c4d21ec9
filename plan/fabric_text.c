/* Device sets as people read and write them: "alpha:0-3,beta:1". */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "plan/fabric.h"

void fabric_print_set(const struct fabric *f, const struct device_set *s, struct buf *out)
{
    for (int32_t i = 0; i < device_set_num(s);) {
        const struct fabric_device *first = &f->devices[s->device[i]], *last = first;
        int32_t end = i + 1;
        while (end < s->num) {
            const struct fabric_device *next = &f->devices[s->device[end]];
            if (next->node != first->node || next->index != last->index + 1) {
                break;
            }
            last = next;
            end++;
        }
        buf_printf(out, "%s%s:%d", i ? "," : "", f->nodes[first->node].name, first->index);
        if (last != first) {
            buf_printf(out, "-%d", last->index);
        }
        i = end;
    }
}

/* Digits that are an index; moves *at behind them. */
static bool read_index(const char **at, const char *end, int32_t *out)
{
    const char *p = *at;
    int32_t value = 0;
    while (p < end && isdigit((unsigned char)*p) && value < FABRIC_MAX_DEVICES) {
        value = value * 10 + (*p++ - '0');
    }
    if (p == *at || value >= FABRIC_MAX_DEVICES || (p < end && isdigit((unsigned char)*p))) {
        return false;
    }
    *at = p;
    *out = value;
    return true;
}

struct found {
    bool *seen; /* [num_devices] */
    int32_t num, num_unknown;
};

/* "alpha:0-3", between p and end. */
static int read_run(const struct fabric *f, const char *p, const char *end, struct found *found,
                    struct error *err)
{
    int len = (int)(end - p < 200 ? end - p : 200);
    const char *colon = memchr(p, ':', (size_t)(end - p));
    int32_t first = 0, last = 0;
    bool good = colon && colon > p;
    const char *at = colon;
    if (good) {
        at++;
        good = read_index(&at, end, &first);
        last = first;
    }
    if (good && at < end && *at == '-') {
        at++;
        good = read_index(&at, end, &last) && last >= first;
    }
    if (!good || at != end) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "\"%.*s\": NODE:DEVICE or NODE:FIRST-LAST is wanted", len, p);
    }
    char *name = strndup(p, (size_t)(colon - p));
    ASSERT(name);
    int rc = 0;
    for (int32_t i = first; i <= last && rc == 0; i++) {
        int32_t d = fabric_find_device(f, name, i);
        if (d < 0) {
            found->num_unknown += found->num_unknown < INT32_MAX;
        } else if (found->seen[d]) {
            rc = error_set(err, ERR_INVALID_ARGUMENT, "\"%.*s\": device %d comes twice", len, p, i);
        } else {
            found->seen[d] = true;
            found->num++;
        }
    }
    free(name);
    return rc;
}

static struct device_set *collect(const struct fabric *f, const struct found *found)
{
    int32_t *devices = calloc((size_t)found->num + 1, sizeof *devices), num = 0;
    ASSERT(devices);
    for (int32_t d = 0; d < f->num_devices; d++) {
        if (found->seen[d]) {
            devices[num++] = d;
        }
    }
    struct device_set *s = device_set_new(devices, num);
    free(devices);
    return s;
}

int fabric_parse_set(const struct fabric *f, const char *text, struct device_set **out,
                     int32_t *num_unknown, struct error *err)
{
    struct found found = {calloc((size_t)f->num_devices + 1, sizeof(bool)), 0, 0};
    ASSERT(found.seen);
    int rc = 0;
    const char *p = text;
    while (*p && rc == 0) {
        const char *end = p + strcspn(p, ",");
        rc = read_run(f, p, end, &found, err);
        if (rc == 0 && *end == ',' && !end[1]) {
            rc = error_set(err, ERR_INVALID_ARGUMENT, "a device is wanted behind the last comma");
        }
        p = *end ? end + 1 : end;
    }
    if (rc == 0) {
        *out = collect(f, &found);
        *num_unknown = found.num_unknown;
    }
    free(found.seen);
    return rc;
}
