#include "server/audit.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/printable.h"

#define MINUTE_MS 60000

struct refusal {
    struct audit_count row;
    int64_t since_ms;
    bool used, unsaved;
};

struct audit {
    pthread_mutex_t lock;
    struct refusal refusals[AUDIT_REFUSALS_MAX + 1]; /* the last one: all that had no room */
};

int audit_new(struct audit **out)
{
    struct audit *a = calloc(1, sizeof *a);
    if (!a) {
        return -1;
    }
    pthread_mutex_init(&a->lock, NULL);
    *out = a;
    return 0;
}

void audit_free(struct audit *a)
{
    if (a) {
        pthread_mutex_destroy(&a->lock);
        free(a);
    }
}

int audit_change(struct controller *c, const struct caller *who, struct error *err, const char *fmt,
                 ...)
{
    char object[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(object, sizeof object, fmt, ap);
    printable_utf8(object);
    va_end(ap);
    const struct audit_row row = {.time_us = controller_wall_us(c),
                                  .tenant = who->tenant,
                                  .user = who->user,
                                  .token_id = who->token_id,
                                  .method = who->method,
                                  .object = object,
                                  .result = "ok",
                                  .peer = who->peer};
    return store_audit_insert(controller_store(c), &row, NULL, err);
}

/* ---- refusals ---- */

static bool same(const struct audit_count *a, const struct audit_count *b)
{
    return a->token_id == b->token_id && strcmp(a->peer, b->peer) == 0 &&
           strcmp(a->method, b->method) == 0 && strcmp(a->user, b->user) == 0 &&
           strcmp(a->tenant, b->tenant) == 0 && strcmp(a->result, b->result) == 0;
}

/* Lock held. The row that counts this, an unused one, or the last. */
static struct refusal *find_row(struct audit *a, const struct audit_count *row, int64_t now_ms)
{
    struct refusal *unused = NULL;
    for (int i = 0; i < AUDIT_REFUSALS_MAX; i++) {
        struct refusal *r = &a->refusals[i];
        if (r->used && !r->unsaved && now_ms - r->since_ms >= MINUTE_MS) {
            r->used = false;
        }
        if (r->used && same(&r->row, row)) {
            return r;
        }
        unused = !r->used && !unused ? r : unused;
    }
    return unused ? unused : &a->refusals[AUDIT_REFUSALS_MAX];
}

static void start_row(struct refusal *r, const struct audit_count *row, int slot, int64_t now_ms)
{
    uint32_t generation = r->row.generation + 1;
    r->row = *row;
    r->row.slot = slot;
    r->row.generation = generation;
    r->since_ms = now_ms;
    r->used = true;
}

/* "Jobs/Cancel" of "/tandem.v1.Jobs/Cancel". */
static const char *short_method(const char *path)
{
    const char *slash = strrchr(path, '/'), *dot = slash ? strrchr(path, '.') : NULL;
    return dot && dot < slash ? dot + 1 : path;
}

/* Words that may hold what a caller sent: one line, cut at a whole character. */
static void copy_words(char *out, size_t size, const char *text)
{
    size_t len = strlen(text);
    if (len >= size) {
        len = size - 1;
        while (len > 0 && ((unsigned char)text[len] & 0xC0) == 0x80) {
            len--;
        }
    }
    for (size_t i = 0; i < len; i++) {
        out[i] = (unsigned char)text[i] < 32 || text[i] == 127 ? '?' : text[i];
    }
    out[len] = 0;
}

void audit_refusal(struct audit *a, const struct caller *who, const char *method, const char *peer,
                   const char *result)
{
    struct audit_count row = {.time_us = clock_wall_us()};
    if (who) {
        snprintf(row.tenant, sizeof row.tenant, "%s", who->tenant);
        snprintf(row.user, sizeof row.user, "%s", who->user);
        row.token_id = who->token_id;
    }
    snprintf(row.method, sizeof row.method, "%s", short_method(method));
    snprintf(row.peer, sizeof row.peer, "%s", peer ? peer : "");
    copy_words(row.result, sizeof row.result, result);
    int64_t now_ms = clock_mono_ms();
    pthread_mutex_lock(&a->lock);
    struct refusal *r = find_row(a, &row, now_ms);
    bool last = r == &a->refusals[AUDIT_REFUSALS_MAX];
    if (last && r->used && !r->unsaved && now_ms - r->since_ms >= MINUTE_MS) {
        r->used = false;
    }
    if (!r->used) {
        if (last) {
            row = (struct audit_count){.time_us = row.time_us, .result = "denied: others"};
        }
        start_row(r, &row, (int)(r - a->refusals), now_ms);
    }
    r->row.num++;
    r->unsaved = true;
    pthread_mutex_unlock(&a->lock);
}

size_t audit_counts(struct audit *a, struct audit_count out[AUDIT_REFUSALS_MAX + 1])
{
    size_t num = 0;
    pthread_mutex_lock(&a->lock);
    for (int i = 0; i <= AUDIT_REFUSALS_MAX; i++) {
        struct refusal *r = &a->refusals[i];
        if (r->used && r->unsaved) {
            r->unsaved = false;
            out[num++] = r->row;
        }
    }
    pthread_mutex_unlock(&a->lock);
    return num;
}

int audit_count_write(struct store *s, struct audit_count *c, struct error *err)
{
    char result[224];
    if (c->num == 1) {
        snprintf(result, sizeof result, "%s", c->result);
    } else {
        snprintf(result, sizeof result, "%s (%lld times within a minute)", c->result,
                 (long long)c->num);
    }
    const struct audit_row row = {.time_us = c->time_us,
                                  .tenant = c->tenant,
                                  .user = c->user,
                                  .token_id = c->token_id,
                                  .method = c->method,
                                  .object = "",
                                  .result = result,
                                  .peer = c->peer};
    c->written_id = c->row_id;
    if (c->row_id) {
        return store_audit_set_result(s, c->row_id, result, err);
    }
    return store_audit_insert(s, &row, &c->written_id, err);
}

void audit_counts_saved(struct audit *a, const struct audit_count *counts, size_t num)
{
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < num; i++) {
        struct audit_count *row = &a->refusals[counts[i].slot].row;
        if (row->generation == counts[i].generation) {
            row->row_id = counts[i].written_id;
        }
    }
    pthread_mutex_unlock(&a->lock);
}
