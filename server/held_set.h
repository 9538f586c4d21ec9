/* Devices of a job as they are now, and as they were before this batch: what to put back if it
 * can't be committed. Either set is owned here; the two are often one. A set that was read is good
 * until the batch ends, or the next put. Zero-initialised = none. */
#ifndef TANDEM_SERVER_HELD_SET_H
#define TANDEM_SERVER_HELD_SET_H

#include "plan/device_set.h"

struct held_set {
    struct device_set *now, *before; /* NULL = none */
};

static inline bool held_set_changed(const struct held_set *h)
{
    return h->now != h->before;
}

/* Takes s over. */
static inline void held_set_put(struct held_set *h, struct device_set *s)
{
    if (h->now != h->before) {
        device_set_free(h->now);
    }
    h->now = s;
}

/* The batch is committed. */
static inline void held_set_settle(struct held_set *h)
{
    if (h->now != h->before) {
        device_set_free(h->before);
    }
    h->before = h->now;
}

/* The batch, or this part of it, is taken back. */
static inline void held_set_put_back(struct held_set *h)
{
    if (h->now != h->before) {
        device_set_free(h->now);
    }
    h->now = h->before;
}

static inline void held_set_free(struct held_set *h)
{
    held_set_put_back(h);
    device_set_free(h->now);
    h->now = h->before = NULL;
}

#endif
