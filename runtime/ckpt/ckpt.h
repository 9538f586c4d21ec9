/* Checkpoints: canonical tensors (true shapes, Hugging Face names, global layer numbers) in
 * safetensors shards with a manifest; any layout can load them.
 *
 * Folder JOB/ckpt/step-00000100-a1 (step, attempt):
 *   weights-R.safetensors   parameters of file R, "model.layers.0...": F64 of an fp64 run, else F32
 *                           (of a bf16 run its masters)
 *   optim-R.safetensors     the same names with ".exp_avg" and ".exp_avg_sq" behind (adamw)
 *   manifest.json           format version, step, samples, precision, seed; for each file: size and
 *                           SHA-256; for each tensor: file
 *   COMPLETE                written last; holds the manifest's SHA-256
 *
 * All ranks write, to step-...tmp first: fsync of files, then rename, then COMPLETE. Rank 0 commits
 * when all have said that their part is on disk. Nothing without COMPLETE is a checkpoint. */
#ifndef TANDEM_RUNTIME_CKPT_CKPT_H
#define TANDEM_RUNTIME_CKPT_CKPT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/roots.h"
#include "kernels/tensor.h"
#include "plan/params.h"
#include "plan/pieces.h"
#include "proto/names.h"

/* A flat buffer, or a shard of one, in host memory. */
struct ckpt_part {
    void *data;                      /* NULL = there is none (moments with sgd) */
    const struct flat_range *ranges; /* what lies in it, ascending; NULL = the whole flat layout */
    int32_t num_ranges;
};

/* What a rank has to save or to fill. Zero is the default: one rank that holds everything. */
struct ckpt_state {
    const struct param_table *table;
    enum dtype dtype;           /* of the buffers: F32 or F64 */
    bool bf16;                  /* to save: they are the F32 masters of a bf16 run */
    int64_t tensor, tensor_idx; /* tensor ranks, and which of them this is; 0 of 0 = one alone */
    struct ckpt_part weights, exp_avg, exp_avg_sq;
    /* To save: the elements that no other rank of this replica has as its own; ascending, inside
     * the parts' ranges, the same for all parts; `at` is not looked at. NULL = all. */
    const struct flat_range *owned;
    int32_t num_owned;
    /* Blocks of ranks that hold the same state; they share the files out. 0 of 0 = one alone. */
    int32_t replica_idx, num_replicas;
};

struct ckpt_meta {
    int64_t step;             /* finished optimizer steps */
    int64_t consumed_samples; /* the global cursor */
    uint64_t seed;
    int32_t attempt;
    double loss; /* of that step; NAN = not known */
    /* Of the run that saved it: F32, F64, or BF16 with F32 masters. Filled by loading, not read. */
    enum dtype precision;
};

/* Filling: each of these writes what of the model lies here, and leaves padding alone. */

/* Draws the initial weights: Philox, keyed by (seed, name of the tensor, element of the whole
 * tensor), so that no layout changes a draw. Sets ones where the table says so. */
void ckpt_init_random(const struct ckpt_state *state, uint64_t seed);

/* Fills weights from a Hugging Face folder. Every parameter must be there with its shape; a tensor
 * that the model doesn't know is an error that names it (rotary inv_freq buffers and a tied
 * lm_head copy are passed over). roots: where its files may lie; NULL = anywhere. */
int ckpt_load_hf(const struct roots *roots, const char *dir, const struct ckpt_state *state,
                 struct error *err);

/* Saving, in three steps with a barrier after each, so that all ranks agree that all have done it:
 *   every writer   ckpt_save_write   its own bytes into the files of the .tmp folder, fsynced
 *   every writer   ckpt_save_seal    digests of its own file, then its notes
 *   writer 0       ckpt_commit
 * All of it blocks; for async saves run it off the compute thread, on a copy of what is owned.
 *
 * parent: JOB/ckpt. writer of num_writers: all ranks, as many as files of a kind. The parameters
 * are split over the files by bytes, and file i is writer i's own: it lays it out. A tensor whose
 * elements are owned by several ranks is written by all of them, by position; a file that is all
 * its writer's is hashed while it is written, others are read back by ckpt_save_seal. */
struct ckpt_save;
int ckpt_save_write(struct ckpt_save **out, const char *parent, const struct ckpt_state *state,
                    const struct ckpt_meta *meta, int32_t writer, int32_t num_writers,
                    struct error *err);
int ckpt_save_seal(struct ckpt_save *s, struct error *err);
void ckpt_save_free(struct ckpt_save *s);
/* A copy of what is owned, for saves that go on while training does: the owned ranges one behind
 * the other. Fills ranges [num_owned, 1 where owned is NULL] with what lies where in the copy, and
 * says how many elements each part's copy has. */
int64_t ckpt_copy_layout(const struct ckpt_state *state, struct flat_range *ranges);
/* numel elements of a buffer go to element `to` of its copy. */
typedef int (*ckpt_copy_fn)(void *arg, int64_t to, int64_t from, int64_t numel, struct error *err);
int ckpt_copy_each(const struct ckpt_state *state, const struct ckpt_part *part, ckpt_copy_fn fn,
                   void *arg, struct error *err);
/* Checks that every writer's part is there, writes manifest, renames, writes COMPLETE. *dir gets
 * the folder's name; *size_bytes what it holds. */
int ckpt_commit(const char *parent, const struct ckpt_meta *meta, int32_t num_writers, char *dir,
                size_t dir_size, int64_t *size_bytes, struct error *err);
/* Instead of the commit, where a writer failed: gives the space back. */
int ckpt_abandon(const char *parent, const struct ckpt_meta *meta, struct error *err);
/* Removes what killed saves left: *.tmp folders, folders without COMPLETE (damaged ones stay, for
 * people to look at). Called before ranks start, by one process. */
int ckpt_sweep(const char *parent, struct error *err);

/* Reads a complete checkpoint: checks sizes and SHA-256 of the files that it reads (a damaged one
 * is ERR_DATA_LOSS and named), then fills state and meta; whatever layout and precision wrote it: a
 * caller that minds F64 in F32 buffers looks at meta->precision. Parts without
 * data are passed over (moments, for a reader who only wants weights). */
int ckpt_load(const char *dir, const struct ckpt_state *state, struct ckpt_meta *meta,
              struct error *err);
/* The same by `num` readers at once, of which this is idx: each checks the digests of its share of
 * all files, so that none is hashed twice. What one has read is good when all have succeeded; ranks
 * that train know that from their first collective. */
int ckpt_load_share(const char *dir, const struct ckpt_state *state, struct ckpt_meta *meta,
                    int32_t idx, int32_t num, struct error *err);
/* Notes in a folder (file DAMAGED: why) that its checkpoint is no longer one, so that the next
 * older one is taken. Readers under way aren't disturbed; whoever deletes the note undoes it. */
int ckpt_mark_damaged(const char *dir, const char *why, struct error *err);
/* Checks sizes and SHA-256 of every file. */
int ckpt_verify(const char *dir, struct ckpt_meta *meta, struct error *err);

/* Newest complete checkpoint below parent into dir ("" = none); *step = 0 then. */
int ckpt_newest(const char *parent, char *dir, size_t dir_size, int64_t *step, struct error *err);

/* A Hugging Face folder (config.json, model.safetensors; index and shards above 5 GB) with the
 * weights of the complete checkpoint ckpt_dir, atomically: out_dir appears whole or not at all.
 * They are in the run's precision: of a bf16 run the masters, rounded to the nearest (ties to even)
 * as the run rounds them for its layers. An older folder is replaced. Tensor by tensor through a
 * buffer of fixed size: no rank's memory and no layout matter. table: of all of the model, for
 * names and true shapes. */
int ckpt_export_hf(const char *out_dir, const char *ckpt_dir, const struct param_table *table,
                   const ModelConfig *config, struct error *err);
/* The same with another bound of a shard's bytes. */
int ckpt_export_hf_shards(const char *out_dir, const char *ckpt_dir,
                          const struct param_table *table, const ModelConfig *config,
                          int64_t shard_bytes_max, struct error *err);

#endif
