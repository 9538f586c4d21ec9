#include "plan/device_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static int compare(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static size_t bytes_of(int32_t num)
{
    return sizeof(struct device_set) + (size_t)num * sizeof(int32_t);
}

struct device_set *device_set_new(const int32_t *devices, int32_t num)
{
    ASSERT(num >= 0);
    if (num == 0) {
        return NULL;
    }
    struct device_set *s = malloc(bytes_of(num));
    ASSERT(s);
    s->num = num;
    memcpy(s->device, devices, (size_t)num * sizeof *devices);
    bool sorted = true;
    for (int32_t i = 1; i < num && sorted; i++) {
        sorted = s->device[i - 1] < s->device[i];
    }
    if (!sorted) {
        qsort(s->device, (size_t)num, sizeof *s->device, compare);
        for (int32_t i = 1; i < num; i++) {
            ASSERT(s->device[i - 1] < s->device[i]);
        }
    }
    return s;
}

struct device_set *device_set_copy(const struct device_set *s)
{
    if (!s) {
        return NULL;
    }
    struct device_set *copy = malloc(bytes_of(s->num));
    ASSERT(copy);
    memcpy(copy, s, bytes_of(s->num));
    return copy;
}

void device_set_free(struct device_set *s)
{
    free(s);
}

bool device_set_has(const struct device_set *s, int32_t device)
{
    return s && bsearch(&device, s->device, (size_t)s->num, sizeof *s->device, compare) != NULL;
}

bool device_set_equal(const struct device_set *a, const struct device_set *b)
{
    if (device_set_num(a) != device_set_num(b)) {
        return false;
    }
    return !a || memcmp(a->device, b->device, (size_t)a->num * sizeof *a->device) == 0;
}
