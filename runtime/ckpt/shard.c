#include "runtime/ckpt/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "base/fs.h"

/* Tensors are written as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors is little-endian");

#define CHUNK_BYTES ((size_t)1 << 20)

static EVP_MD_CTX *hash_new(struct error *err)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1) {
        return ctx;
    }
    EVP_MD_CTX_free(ctx);
    error_set(err, ERR_INTERNAL, "SHA-256 is not available");
    return NULL;
}

static int hash_finish(EVP_MD_CTX *ctx, char out[SHARD_SHA256_TEXT], struct error *err)
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (EVP_DigestFinal_ex(ctx, raw, &n) != 1 || n != 32) {
        return error_set(err, ERR_INTERNAL, "SHA-256 failed");
    }
    for (unsigned i = 0; i < n; i++) {
        snprintf(out + (size_t)2 * i, 3, "%02x", raw[i]);
    }
    return 0;
}

/* ---- front to back -----------------------------------------------------------------------------
 */

struct shard_writer {
    char *path;
    int fd;
    EVP_MD_CTX *ctx;
    int64_t size_bytes;
};

static void writer_free(struct shard_writer *w)
{
    if (w->fd >= 0) {
        close(w->fd);
    }
    EVP_MD_CTX_free(w->ctx);
    free(w->path);
    free(w);
}

static int open_file(const char *path, int more, struct error *err)
{
    int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | more;
    int fd = open(path, flags, 0644);
    return fd >= 0 ? fd : error_errno(err, errno, "%s", path);
}

int shard_create(struct shard_writer **out, const char *path, struct error *err)
{
    struct shard_writer *w = calloc(1, sizeof *w);
    char *copy = strdup(path);
    if (!w || !copy) {
        free(w);
        free(copy);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    }
    *w = (struct shard_writer){.path = copy, .fd = -1, .ctx = hash_new(err)};
    if (w->ctx) {
        w->fd = open_file(path, O_TRUNC, err);
    }
    if (w->fd < 0) {
        writer_free(w);
        return -1;
    }
    *out = w;
    return 0;
}

/* Hashes and writes in pieces that stay in the cache between the two. */
int shard_append(struct shard_writer *w, const void *data, size_t len, struct error *err)
{
    const char *p = data;
    while (len) {
        size_t n = len < CHUNK_BYTES ? len : CHUNK_BYTES;
        if (EVP_DigestUpdate(w->ctx, p, n) != 1) {
            return error_set(err, ERR_INTERNAL, "%s: SHA-256 failed", w->path);
        }
        if (fs_write_all(w->fd, p, n) != 0) {
            return error_errno(err, errno, "%s: write", w->path);
        }
        w->size_bytes += (int64_t)n;
        p += n;
        len -= n;
    }
    return 0;
}

int shard_finish(struct shard_writer *w, struct shard_digest *out, struct error *err)
{
    out->size_bytes = w->size_bytes;
    int rc = hash_finish(w->ctx, out->sha256, err);
    int fd = w->fd;
    w->fd = -1;
    if (shard_close(fd, w->path, rc == 0 ? err : NULL) != 0) {
        rc = -1;
    }
    if (rc != 0) {
        unlink(w->path);
    }
    writer_free(w);
    return rc;
}

void shard_discard(struct shard_writer *w)
{
    unlink(w->path);
    writer_free(w);
}

/* ---- by position -------------------------------------------------------------------------------
 */

int shard_open(const char *path, struct error *err)
{
    return open_file(path, 0, err);
}

int shard_write_at(int fd, const char *path, const void *data, size_t len, uint64_t at,
                   struct error *err)
{
    const char *p = data;
    while (len) {
        ssize_t n = pwrite(fd, p, len, (off_t)at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return error_errno(err, errno, "%s: write", path);
        }
        p += n;
        at += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

int shard_close(int fd, const char *path, struct error *err)
{
    int rc = fsync(fd) == 0 ? 0 : error_errno(err, errno, "%s: fsync", path);
    if (close(fd) != 0 && rc == 0) {
        rc = error_errno(err, errno, "%s: close", path);
    }
    return rc;
}

/* ---- digests -----------------------------------------------------------------------------------
 */

static int digest_fd(int fd, EVP_MD_CTX *ctx, const char *path, struct shard_digest *out,
                     struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return error_errno(err, errno, "%s", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: not a regular file", path);
    }
    char *chunk = malloc(CHUNK_BYTES);
    if (!chunk) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    }
    out->size_bytes = 0;
    int rc = 0;
    for (;;) {
        ssize_t n = read(fd, chunk, CHUNK_BYTES);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            rc = error_errno(err, errno, "%s: read", path);
        }
        if (n <= 0) {
            break;
        }
        out->size_bytes += n;
        if (EVP_DigestUpdate(ctx, chunk, (size_t)n) != 1) {
            rc = error_set(err, ERR_INTERNAL, "%s: SHA-256 failed", path);
            break;
        }
    }
    free(chunk);
    return rc == 0 ? hash_finish(ctx, out->sha256, err) : rc;
}

int shard_digest_file(const char *path, struct shard_digest *out, struct error *err)
{
    EVP_MD_CTX *ctx = hash_new(err);
    if (!ctx) {
        return -1;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int rc = fd < 0 ? error_errno(err, errno, "%s", path) : digest_fd(fd, ctx, path, out, err);
    if (fd >= 0) {
        close(fd);
    }
    EVP_MD_CTX_free(ctx);
    return rc;
}

int shard_digest_bytes(const void *data, size_t len, struct shard_digest *out, struct error *err)
{
    EVP_MD_CTX *ctx = hash_new(err);
    if (!ctx) {
        return -1;
    }
    int rc = EVP_DigestUpdate(ctx, data, len) == 1 ? hash_finish(ctx, out->sha256, err)
                                                   : error_set(err, ERR_INTERNAL, "SHA-256 failed");
    out->size_bytes = (int64_t)len;
    EVP_MD_CTX_free(ctx);
    return rc;
}
