/* One safetensors file written from memory, with size and SHA-256 taken while it is written. */
#ifndef TANDEM_RUNTIME_CKPT_SHARD_H
#define TANDEM_RUNTIME_CKPT_SHARD_H

#include <stdint.h>

#include "runtime/ckpt/safetensors.h"

#define SHARD_SHA256_TEXT 65 /* hex and NUL */

struct shard_digest {
    int64_t size_bytes;
    char sha256[SHARD_SHA256_TEXT];
};

/* Lays out the tensors in the order given and writes path with the bytes of data[i], then fsyncs
 * it. A file that fails is removed again. metadata as in st_layout. */
int shard_write(const char *path, struct st_tensor *tensors, const void *const *data, int32_t num,
                const char *const *metadata, struct shard_digest *out, struct error *err);

/* Digest of a file as it lies on disk. */
int shard_digest_file(const char *path, struct shard_digest *out, struct error *err);
/* Digest of bytes in memory. */
int shard_digest_bytes(const void *data, size_t len, struct shard_digest *out, struct error *err);

#endif
