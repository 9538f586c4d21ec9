/* One safetensors file in the making, and digests. Where one process has all of it, it is written
 * front to back and hashed on the way; where several have parts of it, each writes its own bytes by
 * position, and the digest is that of what lies on disk in the end. */
#ifndef TANDEM_RUNTIME_CKPT_SHARD_H
#define TANDEM_RUNTIME_CKPT_SHARD_H

#include <stdint.h>

#include "runtime/ckpt/safetensors.h"

#define SHARD_SHA256_TEXT 65 /* hex and NUL */

struct shard_digest {
    int64_t size_bytes;
    char sha256[SHARD_SHA256_TEXT];
};

/* ---- front to back ---- */

struct shard_writer;
/* Makes path, or empties it. */
int shard_create(struct shard_writer **out, const char *path, struct error *err);
int shard_append(struct shard_writer *w, const void *data, size_t len, struct error *err);
/* fsyncs. w is gone afterwards in any case; a file that fails is removed again. */
int shard_finish(struct shard_writer *w, struct shard_digest *out, struct error *err);
/* Gives up: removes the file. */
void shard_discard(struct shard_writer *w);

/* ---- by position ---- */

/* Opens path for writing, and makes it where no other writer has; gives the descriptor. */
int shard_open(const char *path, struct error *err);
int shard_write_at(int fd, const char *path, const void *data, size_t len, uint64_t at,
                   struct error *err);
/* fsyncs and closes; closes in any case. */
int shard_close(int fd, const char *path, struct error *err);

/* ---- digests ---- */

/* Of a file as it lies on disk. */
int shard_digest_file(const char *path, struct shard_digest *out, struct error *err);
/* Of bytes in memory. */
int shard_digest_bytes(const void *data, size_t len, struct shard_digest *out, struct error *err);

#endif
