/* A model's state as all ranks of some layout hold it, for the checkpoint tests: real tables of the
 * families on `tensor` ranks, and shards cut anywhere, not only where a plan would. What an element
 * is depends on its tensor and its place there alone, so any layout's state can be checked. */
#ifndef TANDEM_TESTS_UNIT_CKPT_LAYOUT_H
#define TANDEM_TESTS_UNIT_CKPT_LAYOUT_H

#include "base/arena.h"
#include "runtime/ckpt/ckpt.h"

#define LAYOUT_MAX_RANKS 48
#define LAYOUT_MAX_BUCKETS 8

/* Of tests/golden, or with other sizes where heads is set. */
struct layout_model {
    const char *family; /* "llama-tiny": folder of tests/golden */
    int64_t heads, kv_heads, vocab_size;
};

/* Every dense family; heads that 3 and 6 divide, KV heads fewer than most ranks, an odd vocabulary
 * and one smaller than the ranks. */
#define LAYOUT_NUM_MODELS 8
extern const struct layout_model layout_models[LAYOUT_NUM_MODELS];

struct layout_spec {
    struct layout_model model;
    enum dtype dtype;
    bool moments;
    int32_t tensor, shards, replicas;
    int32_t zero_stage; /* what is cut over the shards: 1, 2 moments, 3 weights too */
    int32_t num_buckets;
    uint64_t cuts; /* seed of where the buckets and slices end */
};

struct layout_rank {
    struct ckpt_state state;                      /* buffers owned */
    struct flat_range slices[LAYOUT_MAX_BUCKETS]; /* of this rank's shard */
    int64_t numel[3];                             /* of the buffers: weights, exp_avg, exp_avg_sq */
};

struct layout {
    struct layout_spec spec;
    ModelConfig *config; /* owned */
    struct arena arena;
    struct param_table table;
    int32_t num_ranks;
    struct layout_rank ranks[LAYOUT_MAX_RANKS]; /* (replica, shard, tensor), tensor fastest */
};

/* All that a seed draws, over the models and sizes worth a test. dtype and moments are the
 * caller's. */
struct layout_spec layout_draw(const struct layout_model *model, uint64_t seed);
/* "llama-tiny tensor 3, 2 x 4 ranks, stage 3, ..." */
void layout_text(const struct layout_spec *spec, char *out, size_t size);

/* Buffers hold what no tensor has. */
void layout_new(struct layout *l, const struct layout_spec *spec);
void layout_free(struct layout *l);
/* Gives every element that lies here the value that `seed` says; padding keeps what it had. */
void layout_fill(struct layout *l, uint64_t seed);
/* Every element of every rank is as layout_fill(seed) makes it, and padding as layout_new did.
 * NULL, or what is wrong (static). weights_only: the moments are as layout_new made them. */
const char *layout_differs(const struct layout *l, uint64_t seed, bool weights_only);

/* All ranks save, one after the other, in an order drawn by the spec's seed; -1 where one fails. */
int layout_save(const struct layout *l, const char *parent, const struct ckpt_meta *meta, char *dir,
                size_t dir_size, struct error *err);
/* One rank that holds everything. */
struct layout_spec layout_one_rank(const struct layout_model *model, enum dtype dtype,
                                   bool moments);
/* TANDEM_SEED, or 1. */
uint64_t layout_first_seed(void);
/* Saves below root/ckpt; fails the test where that fails. */
void layout_save_ok(const struct layout *l, const char *root, int64_t step, char dir[256]);
/* Loads into a layout whose buffers hold nothing yet, and compares; `from` is for messages. */
void layout_load_equals(const struct layout_spec *spec, const char *dir, uint64_t seed,
                        const char *from);

/* All ranks load. */
int layout_load(struct layout *l, const char *dir, struct ckpt_meta *meta, struct error *err);

#endif
