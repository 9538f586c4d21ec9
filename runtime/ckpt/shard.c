#include "runtime/ckpt/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Hashes and writes in pieces that stay in the cache between the two. */
static int put(int fd, EVP_MD_CTX *ctx, const void *data, size_t len, const char *path,
               struct error *err)
{
    const char *p = data;
    while (len) {
        size_t n = len < CHUNK_BYTES ? len : CHUNK_BYTES;
        if (EVP_DigestUpdate(ctx, p, n) != 1) {
            return error_set(err, ERR_INTERNAL, "%s: SHA-256 failed", path);
        }
        if (fs_write_all(fd, p, n) != 0) {
            return error_errno(err, errno, "%s: write", path);
        }
        p += n;
        len -= n;
    }
    return 0;
}

static int write_open(int fd, EVP_MD_CTX *ctx, const char *path, const struct st_tensor *tensors,
                      const void *const *data, int32_t num, const char *header, size_t header_len,
                      struct error *err)
{
    if (put(fd, ctx, header, header_len, path, err) != 0) {
        return -1;
    }
    for (int32_t i = 0; i < num; i++) {
        size_t bytes = (size_t)(tensors[i].end - tensors[i].begin);
        if (put(fd, ctx, data[i], bytes, path, err) != 0) {
            return -1;
        }
    }
    return fsync(fd) == 0 ? 0 : error_errno(err, errno, "%s: fsync", path);
}

int shard_write(const char *path, struct st_tensor *tensors, const void *const *data, int32_t num,
                const char *const *metadata, struct shard_digest *out, struct error *err)
{
    char *header;
    size_t header_len;
    uint64_t data_bytes;
    if (st_layout(tensors, num, metadata, &header, &header_len, &data_bytes, err) != 0) {
        return error_wrap(err, "%s", path);
    }
    int rc = -1;
    EVP_MD_CTX *ctx = hash_new(err);
    int fd = -1;
    if (!ctx) {
        goto out;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (fd < 0) {
        error_errno(err, errno, "%s", path);
        goto out;
    }
    rc = write_open(fd, ctx, path, tensors, data, num, header, header_len, err);
    if (rc == 0) {
        out->size_bytes = (int64_t)(header_len + data_bytes);
        rc = hash_finish(ctx, out->sha256, err);
    }
    if (close(fd) != 0 && rc == 0) {
        rc = error_errno(err, errno, "%s: close", path);
    }
    if (rc != 0) {
        unlink(path);
    }
out:
    EVP_MD_CTX_free(ctx);
    free(header);
    return rc;
}

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
