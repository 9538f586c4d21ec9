/* manifest.json: what a checkpoint holds.
 *
 * {"format": "tandem-checkpoint", "version": 1, "step": ..., "optimizer_step": ..., "attempt": ...,
 *  "consumed_samples": ..., "seed": "decimal", "precision": "fp32", "writers": ..., "loss": ...,
 *  "files": {name: {"bytes": ..., "sha256": ...}}, "tensors": {name: file}} */
#ifndef TANDEM_RUNTIME_CKPT_MANIFEST_H
#define TANDEM_RUNTIME_CKPT_MANIFEST_H

#include <jansson.h>

#include "runtime/ckpt/ckpt.h"
#include "runtime/ckpt/shard.h"

struct manifest {
    struct ckpt_meta meta;
    json_t *root;    /* owned */
    json_t *files;   /* in root */
    json_t *tensors; /* in root */
};

/* From the notes of all writers in dir. */
int manifest_build(const char *dir, const struct ckpt_meta *meta, int32_t num_writers,
                   struct manifest *out, struct error *err);
/* Writes it into dir; *digest seals it. */
int manifest_write(const char *dir, const struct manifest *m, struct shard_digest *digest,
                   struct error *err);
/* Of a complete checkpoint: checks the seal in COMPLETE and every field. */
int manifest_read(const char *dir, struct manifest *out, struct error *err);
void manifest_free(struct manifest *m);
/* Size and SHA-256 of one of its files, against what lies in dir. */
int manifest_check_file(const char *dir, const struct manifest *m, const char *file,
                        struct error *err);

#endif
