#include "old_gradients.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/parallel/store_private.h"

#define CHUNK_BYTES 65536

static char nans[CHUNK_BYTES]; /* as long as the process: copies may land late */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* All ones are a NaN of either type. */
static void make_nans(void)
{
    memset(nans, 0xff, sizeof(nans));
}

static bool is_mode(const char *mode)
{
    const char *wanted = getenv(OLD_GRADIENTS);
    return wanted != NULL && strcmp(wanted, mode) == 0;
}

static int fill(struct store *s, char *mem, int64_t numel, struct error *err)
{
    const struct device_ops *ops = s->o.dev->ops;
    size_t bytes = (size_t)numel * dtype_size(s->wide);
    if (is_mode(OLD_ZERO))
        return ops->zero(s->o.dev, s->o.compute, mem, bytes, err);
    if (!is_mode(OLD_NAN))
        return 0;
    pthread_once(&once, make_nans);
    for (size_t at = 0; at < bytes; at += CHUNK_BYTES) {
        size_t n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        if (ops->copy(s->o.dev, s->o.compute, mem + at, nans, n, COPY_TO_DEVICE, err) != 0)
            return -1;
    }
    return 0;
}

int __real_store_begin_step(struct store *s, struct error *err);
int __wrap_store_begin_step(struct store *s, struct error *err);
int __wrap_store_begin_step(struct store *s, struct error *err)
{
    if (fill(s, s->grads, store_view(s, STORE_GRADS).numel, err) != 0)
        return -1;
    return __real_store_begin_step(s, err);
}

/* The last bucket's sums may still be reading the slot. */
int __real_store_open_grads(struct store *s, int32_t bucket, int32_t slot, struct error *err);
int __wrap_store_open_grads(struct store *s, int32_t bucket, int32_t slot, struct error *err);
int __wrap_store_open_grads(struct store *s, int32_t bucket, int32_t slot, struct error *err)
{
    ASSERT(slot >= 0 && slot < s->num_grad_slots);
    const struct store_slot *at = &s->grad_slots[slot];
    const struct device_ops *ops = s->o.dev->ops;
    if ((at->has_free && ops->stream_wait(s->o.dev, s->o.compute, at->free, err) != 0) ||
        fill(s, at->mem, at->numel, err) != 0)
        return -1;
    return __real_store_open_grads(s, bucket, slot, err);
}

bool __real_store_grads_are_new(const struct store *s, int32_t micro_batch);
bool __wrap_store_grads_are_new(const struct store *s, int32_t micro_batch);
bool __wrap_store_grads_are_new(const struct store *s, int32_t micro_batch)
{
    return !is_mode(OLD_ZERO) && __real_store_grads_are_new(s, micro_batch);
}
