/* The bytes:
 *
 *   version (1), checksum (8, little-endian) of the rest, then
 *   rows:      count, first step, step differences; token differences of differences; six columns
 *   extremes:  count of entries; each: its distinct rows as above, then 16 picks of 4 bits, which
 *              row is the minimum and maximum of each series, the first, the last
 *
 * Counts and differences are varints, signed ones zigzag. A column is a run of
 *   0, n             n more numbers equal to the one before
 *   lead << 4 | len  len bytes that differ after lead equal ones, the rest equal
 * where "before" is NaN at the start, so that a column of nothing is two or three bytes. */
#include "server/store/metric_codec.h"

#include <string.h>

#include "base/error.h"

#define VERSION 1
#define HEAD_BYTES 9
#define PICKS (2 * METRIC_SERIES + 2)

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read as they lie");

static uint64_t check_of(const uint8_t *p, size_t len)
{
    uint64_t h = 0x9e3779b97f4a7c15u ^ len;
    while (len > 0) {
        uint64_t word = 0;
        size_t n = len < 8 ? len : 8;
        memcpy(&word, p, n);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
        p += n;
        len -= n;
    }
    return h;
}

static uint64_t bits_of(double d)
{
    uint64_t u;
    d = isnan(d) ? (double)NAN : d;
    memcpy(&u, &d, sizeof u);
    return u;
}

/* ---- writing ---- */

static void put_varint(struct buf *b, uint64_t v)
{
    char bytes[10];
    size_t n = 0;
    do {
        bytes[n++] = (char)((v & 127) | (v > 127 ? 128 : 0));
        v >>= 7;
    } while (v);
    buf_append(b, bytes, n);
}

static void put_zigzag(struct buf *b, int64_t v)
{
    put_varint(b, ((uint64_t)v << 1) ^ (v < 0 ? ~(uint64_t)0 : 0));
}

static void put_column(struct buf *b, const struct metric_row *rows, size_t num, int series)
{
    uint64_t before = bits_of((double)NAN);
    for (size_t i = 0; i < num;) {
        uint64_t differs = bits_of(rows[i].values[series]) ^ before;
        if (!differs) {
            size_t n = 1;
            while (i + n < num && bits_of(rows[i + n].values[series]) == before) {
                n++;
            }
            buf_putc(b, 0);
            put_varint(b, n);
            i += n;
            continue;
        }
        int lead = __builtin_clzll(differs) / 8, trail = __builtin_ctzll(differs) / 8;
        int len = 8 - lead - trail;
        char bytes[9];
        bytes[0] = (char)(lead << 4 | len);
        for (int k = 0; k < len; k++) {
            bytes[1 + k] = (char)(differs >> (8 * (7 - lead - k)));
        }
        buf_append(b, bytes, (size_t)len + 1);
        before ^= differs;
        i++;
    }
}

static void put_rows(struct buf *b, const struct metric_row *rows, size_t num)
{
    ASSERT(num >= 1 && num <= METRIC_CHUNK_STEPS);
    put_varint(b, num);
    put_varint(b, (uint64_t)rows[0].step);
    for (size_t i = 1; i < num; i++) {
        put_varint(b, (uint64_t)(rows[i].step - rows[i - 1].step));
    }
    uint64_t before = 0, by = 0;
    for (size_t i = 0; i < num; i++) {
        uint64_t now = (uint64_t)rows[i].tokens;
        put_zigzag(b, (int64_t)(now - before - by));
        by = now - before;
        before = now;
    }
    for (int i = 0; i < METRIC_SERIES; i++) {
        if (i != METRIC_TOKENS) {
            put_column(b, rows, num, i);
        }
    }
}

static size_t begin(struct buf *b)
{
    static const char head[HEAD_BYTES] = {VERSION};
    buf_append(b, head, sizeof head);
    return b->len;
}

void metric_codec_sign(void *data, size_t len)
{
    uint8_t *p = data;
    if (len >= HEAD_BYTES) {
        uint64_t sum = check_of(p + HEAD_BYTES, len - HEAD_BYTES);
        memcpy(p + 1, &sum, sizeof sum);
    }
}

static void finish(struct buf *b, size_t body)
{
    metric_codec_sign(b->data + body - HEAD_BYTES, b->len - body + HEAD_BYTES);
}

void metric_pack_rows(const struct metric_row *rows, size_t num, struct buf *out)
{
    size_t body = begin(out);
    put_rows(out, rows, num);
    finish(out, body);
}

static const struct metric_row *pick(const struct metric_extremes *e, size_t i)
{
    return i < METRIC_SERIES       ? &e->min[i]
           : i < 2 * METRIC_SERIES ? &e->max[i - METRIC_SERIES]
           : i == PICKS - 2        ? &e->first
                                   : &e->last;
}

static void put_extremes(struct buf *b, const struct metric_extremes *e)
{
    struct metric_row rows[PICKS];
    size_t num = 0;
    for (size_t i = 0; i < PICKS; i++) {
        const struct metric_row *r = pick(e, i);
        size_t at = 0;
        while (at < num && rows[at].step < r->step) {
            at++;
        }
        if (at == num || rows[at].step != r->step) {
            memmove(&rows[at + 1], &rows[at], (num - at) * sizeof *rows);
            rows[at] = *r;
            num++;
        }
    }
    put_rows(b, rows, num);
    for (size_t i = 0; i < PICKS; i += 2) {
        int picks = 0;
        for (size_t k = 0; k < 2; k++) {
            int at = 0;
            while (rows[at].step != pick(e, i + k)->step) {
                at++;
            }
            picks |= at << (4 * k);
        }
        buf_putc(b, (char)picks);
    }
}

void metric_pack_extremes(const struct metric_extremes *list, size_t num, struct buf *out)
{
    ASSERT(num >= 1 && num <= METRIC_CHUNK_BLOCKS);
    size_t body = begin(out);
    put_varint(out, num);
    for (size_t i = 0; i < num; i++) {
        put_extremes(out, &list[i]);
    }
    finish(out, body);
}

/* ---- reading: bytes that may be anything ---- */

struct in {
    const uint8_t *p, *end;
    bool bad;
};

static uint64_t get_byte(struct in *in)
{
    if (in->p == in->end) {
        in->bad = true;
        return 0;
    }
    return *in->p++;
}

static uint64_t get_varint(struct in *in)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint64_t byte = get_byte(in);
        v |= (byte & 127) << shift;
        if (byte < 128) {
            return v;
        }
    }
    in->bad = true;
    return 0;
}

static uint64_t get_zigzag(struct in *in)
{
    uint64_t v = get_varint(in);
    return (v >> 1) ^ (0 - (v & 1));
}

/* len bytes, 1 to 8, as the low bytes of a number. */
static uint64_t get_bytes(struct in *in, unsigned len)
{
    uint64_t v = 0;
    if (in->end - in->p >= 8) {
        memcpy(&v, in->p, 8);
        in->p += len;
        return __builtin_bswap64(v) >> (64 - 8 * len);
    }
    for (unsigned k = 0; k < len; k++) {
        v = v << 8 | get_byte(in);
    }
    return v;
}

static void get_column(struct in *in, struct metric_row *rows, size_t num, int series)
{
    uint64_t before = bits_of((double)NAN);
    for (size_t i = 0; i < num && !in->bad;) {
        unsigned head = (unsigned)get_byte(in), lead = head >> 4, len = head & 15;
        uint64_t n = 1;
        if (head == 0) {
            n = get_varint(in);
            in->bad = in->bad || n == 0 || n > num - i;
        } else if (len == 0 || lead + len > 8) {
            in->bad = true;
        } else {
            before ^= get_bytes(in, len) << (8 * (8 - lead - len));
        }
        for (uint64_t k = 0; k < n && !in->bad; k++) {
            memcpy(&rows[i++].values[series], &before, sizeof before);
        }
    }
}

static size_t get_rows(struct in *in, int32_t attempt, int64_t first, int64_t last, size_t max,
                       struct metric_row *rows)
{
    uint64_t num = get_varint(in);
    if (num < 1 || num > max) {
        in->bad = true;
        return 0;
    }
    uint64_t step = 0;
    for (size_t i = 0; i < num && !in->bad; i++) {
        uint64_t by = get_varint(in);
        if (by < 1 || by > (uint64_t)last - step) {
            in->bad = true;
        }
        step += by;
        rows[i].step = (int64_t)step;
        rows[i].attempt = attempt;
    }
    in->bad = in->bad || rows[0].step < first;
    uint64_t before = 0, by = 0;
    for (size_t i = 0; i < num && !in->bad; i++) {
        by += get_zigzag(in);
        before += by;
        rows[i].tokens = (int64_t)before;
        rows[i].values[METRIC_TOKENS] = (double)rows[i].tokens;
    }
    for (int i = 0; i < METRIC_SERIES; i++) {
        if (i != METRIC_TOKENS) {
            get_column(in, rows, num, i);
        }
    }
    return num;
}

static struct in open_blob(const void *data, size_t len)
{
    const uint8_t *p = data;
    struct in in = {.bad = true};
    if (p && len > HEAD_BYTES && p[0] == VERSION) {
        uint64_t sum = 0;
        for (size_t i = 0; i < 8; i++) {
            sum |= (uint64_t)p[1 + i] << (8 * i);
        }
        in = (struct in){.p = p + HEAD_BYTES, .end = p + len};
        in.bad = sum != check_of(in.p, len - HEAD_BYTES);
    }
    return in;
}

int metric_unpack_rows(const void *data, size_t len, int32_t attempt, int64_t first, int64_t last,
                       struct metric_row *rows, size_t *num)
{
    struct in in = open_blob(data, len);
    if (!in.bad) {
        *num = get_rows(&in, attempt, first, last, METRIC_CHUNK_STEPS, rows);
    }
    return in.bad || in.p != in.end ? -1 : 0;
}

static void get_extremes(struct in *in, int32_t attempt, int64_t first, int64_t last,
                         struct metric_extremes *e)
{
    struct metric_row rows[PICKS];
    size_t num = get_rows(in, attempt, first, last, PICKS, rows);
    uint8_t picks[PICKS];
    for (size_t i = 0; i < PICKS && !in->bad; i += 2) {
        uint8_t byte = (uint8_t)get_byte(in);
        picks[i] = byte & 15;
        picks[i + 1] = byte >> 4;
        in->bad = in->bad || picks[i] >= num || picks[i + 1] >= num;
    }
    if (in->bad) {
        return;
    }
    for (size_t i = 0; i < METRIC_SERIES; i++) {
        e->min[i] = rows[picks[i]];
        e->max[i] = rows[picks[METRIC_SERIES + i]];
    }
    e->first = rows[picks[PICKS - 2]];
    e->last = rows[picks[PICKS - 1]];
    e->any = true;
}

int metric_unpack_extremes(const void *data, size_t len, int32_t attempt, int64_t first,
                           int64_t last, struct metric_extremes *list, size_t *num)
{
    struct in in = open_blob(data, len);
    if (in.bad) {
        return -1;
    }
    uint64_t n = get_varint(&in);
    if (n < 1 || n > METRIC_CHUNK_BLOCKS) {
        return -1;
    }
    for (size_t i = 0; i < n && !in.bad; i++) {
        get_extremes(&in, attempt, first, last, &list[i]);
    }
    *num = n;
    return in.bad || in.p != in.end ? -1 : 0;
}
