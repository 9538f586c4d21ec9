/* Frames out of a stream of bytes, however it is cut. */
#include <stdlib.h>

#include "runtime/link/link.h"

struct link_decoder {
    struct buf bytes;
    size_t begin; /* of what isn't taken yet */
};

int link_decoder_new(struct link_decoder **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : -1;
}

void link_decoder_free(struct link_decoder *d)
{
    if (d) {
        buf_free(&d->bytes);
        free(d);
    }
}

static size_t frame_len(const struct link_decoder *d)
{
    const uint8_t *p = (const uint8_t *)d->bytes.data + d->begin;
    return (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
}

static int check_len(const struct link_decoder *d, struct error *err)
{
    if (d->bytes.len - d->begin >= 4 && frame_len(d) > LINK_MESSAGE_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "a message of %zu bytes announced; at most %u are taken", frame_len(d),
                         LINK_MESSAGE_MAX);
    }
    return 0;
}

int link_decoder_feed(struct link_decoder *d, const void *data, size_t len, struct error *err)
{
    if (d->begin) {
        buf_consume(&d->bytes, d->begin);
        d->begin = 0;
    }
    buf_append(&d->bytes, data, len);
    return check_len(d, err);
}

int link_decoder_next(struct link_decoder *d, const uint8_t **body, size_t *len, struct error *err)
{
    *body = NULL;
    *len = 0;
    if (check_len(d, err) != 0) {
        return -1;
    }
    size_t have = d->bytes.len - d->begin;
    if (have < 4 || have - 4 < frame_len(d)) {
        return 0;
    }
    *len = frame_len(d);
    *body = (const uint8_t *)d->bytes.data + d->begin + 4;
    d->begin += 4 + *len;
    return 0;
}
