/* A set of devices, by their numbers in a fabric: ascending, immutable, so that it can be shared.
 * NULL is the empty set. One owner frees it. */
#ifndef TANDEM_PLAN_DEVICE_SET_H
#define TANDEM_PLAN_DEVICE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device_set {
    int32_t num;
    int32_t device[]; /* ascending, each once */
};

/* Sorts; num 0 gives NULL. Devices that come twice are a fault of the caller. */
struct device_set *device_set_new(const int32_t *devices, int32_t num);
struct device_set *device_set_copy(const struct device_set *s);
void device_set_free(struct device_set *s);
bool device_set_has(const struct device_set *s, int32_t device);
bool device_set_equal(const struct device_set *a, const struct device_set *b);
static inline int32_t device_set_num(const struct device_set *s)
{
    return s ? s->num : 0;
}

#endif
