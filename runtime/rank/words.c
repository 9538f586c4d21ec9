#include "runtime/rank/words.h"

#include <string.h>

int words_put(struct rank *r, enum word first, const double *values, int64_t n, struct error *err)
{
    size_t bytes = (size_t)n * sizeof(*values);
    memcpy(&r->said[first], values, bytes);
    return r->dev->ops->copy(r->dev, r->compute, &r->words[first], &r->said[first], bytes,
                             COPY_TO_DEVICE, err);
}

int words_clear(struct rank *r, enum word first, int64_t n, struct error *err)
{
    return r->dev->ops->zero(r->dev, r->compute, &r->words[first], (size_t)n * sizeof(*r->words),
                             err);
}

int words_sum(struct rank *r, enum word first, int64_t n, const char *what, struct error *err)
{
    return store_reduce_words(r->store, &r->words[first], n, what, err);
}

int words_get(struct rank *r, enum word first, double *values, int64_t n, struct error *err)
{
    if (r->dev->ops->copy(r->dev, r->compute, values, &r->words[first], (size_t)n * sizeof(*values),
                          COPY_TO_HOST, err) != 0)
        return -1;
    return r->dev->ops->stream_sync(r->dev, r->compute, err);
}
