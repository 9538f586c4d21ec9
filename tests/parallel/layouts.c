#include "layouts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"

static const int64_t data_sizes[] = {1, 2, 3, 4, 5, 6};
static const int64_t tensor_sizes[] = {1, 2, 3, 4, 5, 6, 10};
static const int64_t shard_sizes[] = {0, 1, 2, 3}; /* 0 = all of data */
static const char *const bucket_sizes[] = {"0.001", "0.02", "25"};
static const char *const optimizers[] = {"name: sgd, lr: 0.2, weight_decay: 0.05",
                                         "name: adamw, lr: 0.01, betas: [0.9, 0.95], "
                                         "weight_decay: 0.1"};
static const char *const clips[] = {"0", "0.5"};
/* Of a data rank's share of the batch. */
enum { MICRO_ONE, MICRO_SOME, MICRO_ALL };

#define NUM_OF(list) ((int)(sizeof(list) / sizeof((list)[0])))

int layout_num_values(int factor)
{
    static const int nums[NUM_FACTORS] = {
        [FACTOR_SHAPE] = NUM_SHAPES,
        [FACTOR_DATA] = NUM_OF(data_sizes),
        [FACTOR_TENSOR] = NUM_OF(tensor_sizes),
        [FACTOR_ZERO] = 4,
        [FACTOR_SHARD] = NUM_OF(shard_sizes),
        [FACTOR_MICRO] = 3,
        [FACTOR_SEQUENCE] = 2,
        [FACTOR_BUCKET] = NUM_OF(bucket_sizes),
        [FACTOR_OPTIMIZER] = NUM_OF(optimizers),
        [FACTOR_CLIP] = NUM_OF(clips),
        [FACTOR_PACKED] = 2,
    };
    return nums[factor];
}

static const struct shape *shape_of(const struct layout *l)
{
    return &shapes[l->values[FACTOR_SHAPE]];
}

static int64_t data_of(const struct layout *l)
{
    return data_sizes[l->values[FACTOR_DATA]];
}

static int64_t tensor_of(const struct layout *l)
{
    return tensor_sizes[l->values[FACTOR_TENSOR]];
}

/* 0: there is none of that kind. */
static int64_t micro_of(const struct layout *l)
{
    int64_t share = shape_of(l)->batch / data_of(l);
    int kind = l->values[FACTOR_MICRO];
    if (kind != MICRO_SOME)
        return kind == MICRO_ONE ? 1 : share > 1 ? share : 0;
    for (int64_t micro = share / 2; micro > 1; micro--)
        if (share % micro == 0)
            return micro;
    return 0;
}

int64_t layout_num_ranks(const struct layout *l)
{
    return data_of(l) * tensor_of(l);
}

bool layout_is_feasible(const struct layout *l)
{
    const struct shape *s = shape_of(l);
    int64_t t = tensor_of(l), shard = shard_sizes[l->values[FACTOR_SHARD]];
    bool heads =
        s->heads % t == 0 && s->ffn % t == 0 && (s->kv_heads % t == 0 || t % s->kv_heads == 0);
    bool sharding = shard == 0 || (l->values[FACTOR_ZERO] > 0 && data_of(l) % shard == 0);
    return heads && sharding && s->batch % data_of(l) == 0 && micro_of(l) > 0 &&
           layout_num_ranks(l) <= GANG_MAX_RANKS;
}

int64_t layout_number(const struct layout *l)
{
    int64_t number = 0;
    for (int f = 0; f < NUM_FACTORS; f++)
        number = number * layout_num_values(f) + l->values[f];
    return number;
}

struct layout layout_from_number(int64_t number)
{
    struct layout l = {{0}};
    for (int f = NUM_FACTORS - 1; f >= 0; f--) {
        l.values[f] = (int)(number % layout_num_values(f));
        number /= layout_num_values(f);
    }
    return l;
}

struct layout *layout_list_bound(int *num)
{
    int64_t free_values = 1, all = 1;
    for (int f = 0; f < NUM_FACTORS; f++)
        *(f < NUM_BOUND_FACTORS ? &all : &free_values) *= layout_num_values(f);
    struct layout *list = malloc((size_t)all * sizeof(*list));
    ASSERT(list);
    *num = 0;
    for (int64_t i = 0; i < all; i++) {
        struct layout l = layout_from_number(i * free_values);
        if (layout_is_feasible(&l))
            list[(*num)++] = l;
    }
    return list;
}

struct layout layout_draw(uint64_t seed)
{
    struct layout l;
    uint64_t next = 0;
    do {
        for (int f = 0; f < NUM_FACTORS; f++)
            l.values[f] =
                (int)(rng_u64(seed, rng_stream("layout"), next++) % (uint64_t)layout_num_values(f));
    } while (!layout_is_feasible(&l));
    return l;
}

/* ---- as a job ---------------------------------------------------------------------------------
 */

struct gang_spec layout_one_rank(const struct layout *l, const struct shape_files *files)
{
    bool packed = l->values[FACTOR_PACKED] != 0;
    return (struct gang_spec){
        .golden = &files->sizes,
        .model_path = files->dir,
        .data_path = packed ? files->packed : files->tokens,
        .format = packed ? "tokenized-jsonl" : "u16",
        .steps = 3,
        .micro = 1,
        .bucket_mb = "25",
        .optimizer = optimizers[l->values[FACTOR_OPTIMIZER]],
        .lr_schedule = "warmup_steps: 0, decay: constant",
        .clip = clips[l->values[FACTOR_CLIP]],
    };
}

struct gang_spec layout_spec(const struct layout *l, const struct shape_files *files)
{
    struct gang_spec spec = layout_one_rank(l, files);
    spec.data = data_of(l);
    spec.tensor = tensor_of(l);
    spec.micro = micro_of(l);
    spec.zero_stage = l->values[FACTOR_ZERO];
    spec.shard_size = shard_sizes[l->values[FACTOR_SHARD]];
    spec.sequence_parallel = l->values[FACTOR_SEQUENCE] != 0;
    spec.bucket_mb = bucket_sizes[l->values[FACTOR_BUCKET]];
    return spec;
}

const char *layout_words(const struct layout *l)
{
    static char words[256];
    snprintf(words, sizeof(words),
             "TANDEM_LAYOUT=%lld: %s, data %lld, tensor %lld%s, zero_stage %d, shard_size %lld, "
             "micro %lld of %lld, bucket_mb %s, %s, clip %s%s",
             (long long)layout_number(l), shape_of(l)->family, (long long)data_of(l),
             (long long)tensor_of(l), l->values[FACTOR_SEQUENCE] ? " with sequence" : "",
             l->values[FACTOR_ZERO], (long long)shard_sizes[l->values[FACTOR_SHARD]],
             (long long)micro_of(l), (long long)(shape_of(l)->batch / data_of(l)),
             bucket_sizes[l->values[FACTOR_BUCKET]], l->values[FACTOR_OPTIMIZER] ? "adamw" : "sgd",
             clips[l->values[FACTOR_CLIP]], l->values[FACTOR_PACKED] ? ", packed" : "");
    return words;
}
