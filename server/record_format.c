#include "server/record_format.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

void record_put(struct buf *b, enum record_tag tag)
{
    buf_putc(b, (char)tag);
}

void record_put_number(struct buf *b, int64_t value)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)((uint64_t)value >> (8 * i));
    }
    buf_append(b, bytes, sizeof bytes);
}

void record_put_bytes(struct buf *b, const void *data, size_t len)
{
    record_put_number(b, (int64_t)len);
    if (len) {
        buf_append(b, data, len);
    }
}

void record_put_text(struct buf *b, const char *text)
{
    record_put_bytes(b, text ? text : "", text ? strlen(text) : 0);
}

static uint32_t check_of(const void *data, size_t len)
{
    uint8_t hash[SHA256_DIGEST_LENGTH];
    uint32_t check;
    SHA256(data, len, hash);
    memcpy(&check, hash, sizeof check);
    return check;
}

void record_put_frame(struct buf *out, const struct buf *items)
{
    record_put_number(out, (int64_t)items->len);
    record_put_number(out, (int64_t)check_of(items->data, items->len));
    buf_append(out, items->data, items->len);
}

static const uint8_t *take(struct record_reader *r, size_t len)
{
    if (r->bad || len > r->len - r->at) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *at = r->data + r->at;
    r->at += len;
    return at;
}

int record_peek(const struct record_reader *r)
{
    return r->bad || r->at >= r->len ? 0 : r->data[r->at];
}

int record_take(struct record_reader *r)
{
    const uint8_t *at = record_peek(r) ? take(r, 1) : NULL;
    return at ? *at : 0;
}

int64_t record_take_number(struct record_reader *r)
{
    const uint8_t *at = take(r, 8);
    uint64_t value = 0;
    for (int i = 0; at && i < 8; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return (int64_t)value;
}

const void *record_take_bytes(struct record_reader *r, size_t *len)
{
    int64_t n = record_take_number(r);
    const uint8_t *at = n >= 0 ? take(r, (size_t)n) : NULL;
    r->bad = r->bad || n < 0;
    *len = at ? (size_t)n : 0;
    return at ? at : (const uint8_t *)"";
}

void record_take_text(struct record_reader *r, char *out, size_t size)
{
    size_t len;
    const char *text = record_take_bytes(r, &len);
    snprintf(out, size, "%.*s", (int)(len < size ? len : size - 1), text);
}

bool record_next_frame(struct record_reader *file, struct record_reader *frame)
{
    int64_t len = record_take_number(file), check = record_take_number(file);
    if (file->bad || len <= 0 || (uint64_t)len > RECORD_FRAME_MAX) {
        return false;
    }
    const uint8_t *at = take(file, (size_t)len);
    if (!at || (int64_t)check_of(at, (size_t)len) != check) {
        return false;
    }
    *frame = (struct record_reader){.data = at, .len = (size_t)len};
    return true;
}
