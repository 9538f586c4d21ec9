#include "runtime/ckpt/safetensors.h"

#include "base/buf.h"

#define DATA_ALIGN_BYTES 64

static void put_string(struct buf *b, const char *text)
{
    buf_putc(b, '"');
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\') {
            buf_putc(b, '\\');
            buf_putc(b, *p);
        } else if (c < 0x20 || c == 0x7F) {
            buf_printf(b, "\\u%04x", c);
        } else {
            buf_putc(b, *p);
        }
    }
    buf_putc(b, '"');
}

static int place(struct st_tensor *t, uint64_t *at, struct error *err)
{
    uint64_t bytes = st_dtype_size(t->dtype);
    for (int32_t i = 0; i < t->num_dims; i++) {
        ASSERT(t->shape[i] >= 0);
        if (__builtin_mul_overflow(bytes, (uint64_t)t->shape[i], &bytes)) {
            return error_set(err, ERR_INVALID_ARGUMENT, "tensor \"%s\": shape overflows", t->name);
        }
    }
    t->begin = *at;
    if (__builtin_add_overflow(*at, bytes, at) || *at > INT64_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT, "tensor \"%s\": the file would be too large",
                         t->name);
    }
    t->end = *at;
    return 0;
}

static void put_tensor(struct buf *b, const struct st_tensor *t)
{
    put_string(b, t->name);
    buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", st_dtype_name(t->dtype));
    for (int32_t i = 0; i < t->num_dims; i++) {
        buf_printf(b, "%s%lld", i ? "," : "", (long long)t->shape[i]);
    }
    buf_printf(b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)t->begin,
               (unsigned long long)t->end);
}

int st_layout(struct st_tensor *tensors, int32_t num, const char *const *metadata, char **header,
              size_t *header_len, uint64_t *data_bytes, struct error *err)
{
    struct buf b = {0};
    uint64_t at = 0;
    buf_append(&b, "\0\0\0\0\0\0\0\0{", 9);
    if (metadata && metadata[0]) {
        buf_puts(&b, "\"__metadata__\":{");
        for (int i = 0; metadata[i]; i += 2) {
            ASSERT(metadata[i + 1]);
            buf_puts(&b, i ? "," : "");
            put_string(&b, metadata[i]);
            buf_putc(&b, ':');
            put_string(&b, metadata[i + 1]);
        }
        buf_puts(&b, num ? "}," : "}");
    }
    for (int32_t i = 0; i < num; i++) {
        if (place(&tensors[i], &at, err) != 0) {
            buf_free(&b);
            return -1;
        }
        buf_puts(&b, i ? "," : "");
        put_tensor(&b, &tensors[i]);
    }
    buf_putc(&b, '}');
    while (b.len % DATA_ALIGN_BYTES) {
        buf_putc(&b, ' ');
    }
    if (b.len - 8 > ST_HEADER_MAX_BYTES) {
        buf_free(&b);
        return error_set(err, ERR_INVALID_ARGUMENT, "a header of more than %u bytes",
                         ST_HEADER_MAX_BYTES);
    }
    uint64_t n = b.len - 8;
    for (int i = 0; i < 8; i++) {
        b.data[i] = (char)(n >> (8 * i) & 0xFF);
    }
    *header_len = b.len;
    *data_bytes = at;
    *header = buf_take(&b);
    return 0;
}
