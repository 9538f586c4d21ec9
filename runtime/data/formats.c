#include "runtime/data/formats.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_BYTES 65536

static const struct {
    const char *word;
    size_t token_bytes;
} formats[] = {
    [DATA_TEXT] = {"text", 1},
    [DATA_U16] = {"u16", 2},
    [DATA_U32] = {"u32", 4},
};

struct token_file {
    char *path; /* owned */
    int fd;
    enum data_format format;
    int64_t size_bytes;
};

int formats_parse(const char *word, enum data_format *out, struct error *err)
{
    for (int i = 0; i < (int)(sizeof formats / sizeof formats[0]); i++) {
        if (strcmp(word, formats[i].word) == 0) {
            *out = (enum data_format)i;
            return 0;
        }
    }
    return error_set(err, ERR_INVALID_ARGUMENT,
                     "\"%.64s\" is not a data format; text, u16, u32 and tokenized-jsonl are",
                     word);
}

static int open_file(struct token_file *f, const struct roots *roots, struct error *err)
{
    struct stat st;
    f->fd = roots_open(roots, f->path, &st, err);
    if (f->fd < 0) {
        return -1;
    }
    f->size_bytes = (int64_t)st.st_size;
    size_t token_bytes = formats[f->format].token_bytes;
    if (f->size_bytes % (int64_t)token_bytes != 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: %lld bytes are not a whole number of %s tokens (%zu bytes each)",
                         f->path, (long long)f->size_bytes, formats[f->format].word, token_bytes);
    }
    return 0;
}

int formats_open(struct token_file **out, const struct roots *roots, const char *path,
                 enum data_format format, struct error *err)
{
    struct token_file *f = calloc(1, sizeof *f);
    char *copy = strdup(path);
    if (!f || !copy) {
        free(f);
        free(copy);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    }
    *f = (struct token_file){.path = copy, .fd = -1, .format = format};
    if (open_file(f, roots, err) != 0) {
        formats_close(f);
        return -1;
    }
    *out = f;
    return 0;
}

void formats_close(struct token_file *f)
{
    if (!f) {
        return;
    }
    if (f->fd >= 0) {
        close(f->fd);
    }
    free(f->path);
    free(f);
}

int64_t formats_num_tokens(const struct token_file *f)
{
    return f->size_bytes / (int64_t)formats[f->format].token_bytes;
}

int64_t formats_size_bytes(const struct token_file *f)
{
    return f->size_bytes;
}

static int shrunk(const struct token_file *f, struct error *err)
{
    return error_set(err, ERR_DATA_LOSS, "%s: has shrunk below the %lld bytes it was opened with",
                     f->path, (long long)f->size_bytes);
}

int formats_check_size(const struct token_file *f, struct error *err)
{
    struct stat st;
    if (fstat(f->fd, &st) != 0) {
        return error_errno(err, errno, "%s", f->path);
    }
    return (int64_t)st.st_size < f->size_bytes ? shrunk(f, err) : 0;
}

static int read_bytes(const struct token_file *f, unsigned char *out, size_t len, int64_t at,
                      struct error *err)
{
    size_t got = 0;
    while (got < len) {
        ssize_t n = pread(f->fd, out + got, len - got, (off_t)at + (off_t)got);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return error_errno(err, errno, "%s: read at byte %lld", f->path, (long long)at);
        }
        if (n == 0) {
            return shrunk(f, err);
        }
        got += (size_t)n;
    }
    return 0;
}

static uint32_t decode(const unsigned char *p, size_t token_bytes)
{
    uint32_t v = p[0];
    for (size_t i = 1; i < token_bytes; i++) {
        v |= (uint32_t)p[i] << (8 * i);
    }
    return v;
}

int formats_read(const struct token_file *f, int64_t begin, int64_t n, int64_t vocab_size,
                 int32_t *out, struct error *err)
{
    int64_t have = formats_num_tokens(f);
    if (begin < 0 || n < 0 || begin > have || n > have - begin) {
        return error_set(err, ERR_OUT_OF_RANGE,
                         "%s: %lld tokens from position %lld on asked for, it has %lld", f->path,
                         (long long)n, (long long)begin, (long long)have);
    }
    int64_t token_bytes = (int64_t)formats[f->format].token_bytes;
    int64_t limit = vocab_size > 0 && vocab_size < INT32_MAX ? vocab_size : INT32_MAX;
    unsigned char chunk[CHUNK_BYTES];
    for (int64_t done = 0; done < n;) {
        int64_t take = n - done < CHUNK_BYTES / token_bytes ? n - done : CHUNK_BYTES / token_bytes;
        if (read_bytes(f, chunk, (size_t)(take * token_bytes), (begin + done) * token_bytes, err) !=
            0) {
            return -1;
        }
        for (int64_t i = 0; i < take; i++) {
            uint32_t id = decode(chunk + i * token_bytes, (size_t)token_bytes);
            if ((int64_t)id >= limit && limit == INT32_MAX) {
                return error_set(err, ERR_OUT_OF_RANGE,
                                 "%s: token %lld is %u, which no vocabulary has: is the file %s?",
                                 f->path, (long long)(begin + done + i), id,
                                 formats[f->format].word);
            }
            if ((int64_t)id >= limit) {
                return error_set(err, ERR_OUT_OF_RANGE,
                                 "%s: token %lld is %u; the vocabulary has %lld", f->path,
                                 (long long)(begin + done + i), id, (long long)limit);
            }
            out[done + i] = (int32_t)id;
        }
        done += take;
    }
    return 0;
}
