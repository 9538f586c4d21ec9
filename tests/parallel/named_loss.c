/* Faults of the loss: a model whose logits are known. */
#include "named.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

/* A residual stream of ones, whatever comes in: the logits are the sums of the head's rows. */
struct known_logits {
    int64_t hidden;
    double logits[4];
};

static double known_value(void *arg, const char *name, int64_t idx, bool norm)
{
    const struct known_logits *k = arg;
    if (strcmp(name, "lm_head.weight") == 0)
        return k->logits[idx / k->hidden] / (double)k->hidden;
    if (norm || strcmp(name, "model.embed_tokens.weight") == 0)
        return 1.0;
    bool adds = strstr(name, "o_proj") != NULL || strstr(name, "down_proj") != NULL;
    return adds ? 0.0 : shape_draw(NULL, name, idx, norm);
}

static const struct shape known_shape = {
    .family = "llama",
    .heads = 4,
    .kv_heads = 2,
    .head_dim = 2,
    .hidden = 6,
    .ffn = 4,
    .layers = 1,
    .vocab = 4,
    .batch = 2,
    .seq_len = 4,
    .eps = 1e-20,
};

/* 12. The maximum, the sum of exponentials and the target's logit each belong to the whole
 * vocabulary. */
void a_loss_over_a_cut_vocabulary_is_the_whole_ones(void **state)
{
    (void)state;
    struct known_logits known = {known_shape.hidden, {0.0, 1.0, 2.0, 3.0}};
    struct shape_files files;
    shape_write(&files, &known_shape, known_value, &known);
    shape_write_one_token(&files, &known_shape, 3);
    for (int64_t t = 1; t <= 4; t *= 2) {
        for (int sequence = 0; sequence < (t > 1 ? 2 : 1); sequence++) {
            struct variant v = {1, t, 0, 0, 1, sequence != 0};
            struct gang_spec spec = named_spec(&files, &v);
            struct run r;
            run_well(&r, &spec, NULL, named_words(&v));
            named_check_close(named_words(&v), r.gang.steps[0].loss, 0.4401896985611953);
            run_free(&r);
        }
    }
    shape_remove(&files);
}

/* 13. One target of loss 2 on one rank, three that make 14 on the other: 16 / 4, not the mean of
 * 2 and 14 / 3. */
void unequal_targets_over_data_ranks_weigh_each_target_alike(void **state)
{
    (void)state;
    static const int32_t ids[] = {2, 0, 1, 3}, positions[] = {0, 1, 2, 3}, segments[4] = {0};
    static const int32_t few[] = {-100, 0, -100, -100}, many[] = {1, 1, -100, 1};
    static const struct variant variants[] = {
        {.data = 1, .tensor = 1, .micro = 1},
        {.data = 1, .tensor = 1, .micro = 2},
        {.data = 2, .tensor = 1, .micro = 1},
        {.data = 2, .tensor = 2, .micro = 1},
        {.data = 2, .tensor = 1, .micro = 1, .zero_stage = 2},
    };
    const struct packed_row rows[] = {{ids, few, positions, segments, 4},
                                      {ids, many, positions, segments, 4}};
    double p0 = exp(-2.0), p1 = exp(-14.0 / 3.0), rest = log((1.0 - p0 - p1) / 2.0);
    struct known_logits known = {known_shape.hidden, {-2.0, -14.0 / 3.0, rest, rest}};
    struct shape_files files;
    struct run first = {0};
    shape_write(&files, &known_shape, known_value, &known);
    shape_write_packed(files.packed, rows, 2);
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        struct gang_spec spec = named_spec(&files, &variants[i]);
        struct run later, *r = i == 0 ? &first : &later;
        spec.data_path = files.packed;
        spec.format = "tokenized-jsonl";
        run_well(r, &spec, NULL, named_words(&variants[i]));
        named_check_close(named_words(&variants[i]), r->gang.steps[0].loss, 4.0);
        if (i > 0) {
            named_check_first_step(named_words(&variants[i]), &first, r);
            run_free(r);
        }
    }
    run_free(&first);
    shape_remove(&files);
}
