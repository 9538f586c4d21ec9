#include "runtime/ckpt/safetensors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES 65536

struct st_file {
    char *path;
    int fd;
    uint64_t size_bytes;
    struct st_header header;
    const char *map; /* the whole file; touched by st_file_data's callers only */
};

/* Reads exactly len bytes; a file that ends early was cut under us. */
static int read_at(const struct st_file *f, void *out, size_t len, uint64_t at, struct error *err)
{
    size_t got = 0;
    while (got < len) {
        ssize_t n = pread(f->fd, (char *)out + got, len - got, (off_t)(at + got));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return error_errno(err, errno, "%s: read", f->path);
        }
        if (n == 0) {
            return error_set(err, ERR_DATA_LOSS, "%s: was cut while it was being read", f->path);
        }
        got += (size_t)n;
    }
    return 0;
}

static int read_header(struct st_file *f, struct error *err)
{
    unsigned char head[8];
    if (f->size_bytes < sizeof head) {
        return st_header_parse(f->path, head, 0, f->size_bytes, &f->header, err);
    }
    if (read_at(f, head, sizeof head, 0, err) != 0) {
        return -1;
    }
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) {
        n = n << 8 | head[i];
    }
    /* Wrong lengths are refused before they size an allocation. */
    if (n > ST_HEADER_MAX_BYTES || n > f->size_bytes - 8) {
        return st_header_parse(f->path, head, sizeof head, f->size_bytes, &f->header, err);
    }
    char *text = malloc(8 + n);
    if (!text) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", f->path);
    }
    int rc = read_at(f, text, 8 + n, 0, err);
    if (rc == 0) {
        rc = st_header_parse(f->path, text, 8 + n, f->size_bytes, &f->header, err);
    }
    free(text);
    return rc;
}

static int open_file(struct st_file *f, const struct roots *roots, struct error *err)
{
    struct stat st;
    f->fd = roots_open(roots, f->path, &st, err);
    if (f->fd < 0) {
        return -1;
    }
    f->size_bytes = (uint64_t)st.st_size;
    if (read_header(f, err) != 0) {
        return -1;
    }
    void *map = mmap(NULL, f->size_bytes, PROT_READ, MAP_SHARED, f->fd, 0);
    if (map == MAP_FAILED) {
        return error_errno(err, errno, "%s: map", f->path);
    }
    f->map = map;
    return 0;
}

int st_open(struct st_file **out, const struct roots *roots, const char *path, struct error *err)
{
    struct st_file *f = calloc(1, sizeof *f);
    char *copy = strdup(path);
    if (!f || !copy) {
        free(f);
        free(copy);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    }
    f->path = copy;
    f->fd = -1;
    if (open_file(f, roots, err) != 0) {
        st_close(f);
        return -1;
    }
    *out = f;
    return 0;
}

void st_close(struct st_file *f)
{
    if (!f) {
        return;
    }
    if (f->map) {
        munmap((void *)(uintptr_t)f->map, f->size_bytes);
    }
    if (f->fd >= 0) {
        close(f->fd);
    }
    st_header_free(&f->header);
    free(f->path);
    free(f);
}

const struct st_header *st_file_header(const struct st_file *f)
{
    return &f->header;
}

const char *st_file_path(const struct st_file *f)
{
    return f->path;
}

const void *st_file_data(const struct st_file *f, const struct st_tensor *t)
{
    return f->map + f->header.data_offset + t->begin;
}

static uint32_t load_u16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t load_u32(const unsigned char *p)
{
    return load_u16(p) | load_u16(p + 2) << 16;
}

static double f64_of(const unsigned char *p)
{
    uint64_t bits = load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

static float f32_of_bits(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

/* Every half is a float: exact. */
static float f16_of_bits(uint32_t h)
{
    uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 0x1F, fraction = h & 0x3FF;
    if (exponent == 31) {
        return f32_of_bits(sign | 0x7F800000u | fraction << 13);
    }
    if (exponent == 0) {
        float v = (float)fraction * 0x1p-24f;
        return sign ? -v : v;
    }
    return f32_of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* n elements of the file's type -> double or float. */
static void convert(enum st_dtype type, const unsigned char *from, size_t n, void *to,
                    size_t to_size)
{
    size_t size = st_dtype_size(type);
    for (size_t i = 0; i < n; i++) {
        const unsigned char *p = from + i * size;
        if (type == ST_F64) {
            double v = f64_of(p);
            if (to_size == 8) {
                ((double *)to)[i] = v;
            } else {
                ((float *)to)[i] = (float)v;
            }
            continue;
        }
        float v = type == ST_F32   ? f32_of_bits(load_u32(p))
                  : type == ST_F16 ? f16_of_bits(load_u16(p))
                                   : f32_of_bits(load_u16(p) << 16);
        if (to_size == 8) {
            ((double *)to)[i] = (double)v;
        } else {
            ((float *)to)[i] = v;
        }
    }
}

int st_read_elements(const struct st_file *f, const struct st_tensor *t, int64_t elem_begin,
                     int64_t count, void *dst, size_t dst_size, struct error *err)
{
    ASSERT(dst_size == 4 || dst_size == 8);
    size_t size = st_dtype_size(t->dtype);
    if (t->dtype != ST_F16 && t->dtype != ST_BF16 && t->dtype != ST_F32 && t->dtype != ST_F64) {
        return error_set(err, ERR_UNIMPLEMENTED,
                         "%s: tensor \"%s\" is stored as %s; F16, BF16, F32 and F64 are read",
                         f->path, t->name, st_dtype_name(t->dtype));
    }
    uint64_t have = (t->end - t->begin) / size;
    if (elem_begin < 0 || count < 0 || (uint64_t)elem_begin > have ||
        (uint64_t)count > have - (uint64_t)elem_begin) {
        return error_set(err, ERR_OUT_OF_RANGE,
                         "%s: tensor \"%s\": %lld elements from %lld on asked for, it has %llu",
                         f->path, t->name, (long long)count, (long long)elem_begin,
                         (unsigned long long)have);
    }
    uint64_t at = f->header.data_offset + t->begin + (uint64_t)elem_begin * size;
    unsigned char chunk[CHUNK_BYTES];
    char *to = dst;
    for (uint64_t left = (uint64_t)count; left > 0;) {
        size_t n = left < CHUNK_BYTES / size ? (size_t)left : CHUNK_BYTES / size;
        if (read_at(f, chunk, n * size, at, err) != 0) {
            return -1;
        }
        convert(t->dtype, chunk, n, to, dst_size);
        to += n * dst_size;
        at += n * size;
        left -= n;
    }
    return 0;
}
