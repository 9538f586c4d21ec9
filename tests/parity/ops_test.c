/* Every operation of the cpu backend against the reference, at sizes that fit no vector, tile or
 * block; the reference itself against finite differences is in ops_gradient_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>

#include "tests/parity/ops_run.h"

static const int64_t odd[] = {1, 3, 5, 17, 64, 331};
#define NUM_ODD (sizeof odd / sizeof *odd)

/* Rounding of k products: grows with sqrt(k), and shows against the largest entry of C. */
static void gemm_agrees_for_every_side_and_transpose(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4 * NUM_ODD; i++) {
        struct shape s = {
            .m = odd[i % NUM_ODD],
            .n = odd[(i + 2 + i / NUM_ODD) % NUM_ODD],
            .k = odd[(i + 3 + 2 * (i / NUM_ODD)) % NUM_ODD],
            .trans_a = i & 1,
            .trans_b = i >> 1 & 1,
            .alpha = i % 3 == 0 ? 1 : 0.5,
            .beta = i % 5 == 0   ? 1
                    : i % 5 == 1 ? -0.25
                                 : 0,
        };
        char what[120];
        snprintf(what, sizeof what, "gemm %lldx%lldx%lld %d%d", (long long)s.m, (long long)s.n,
                 (long long)s.k, s.trans_a, s.trans_b);
        check_parity(what, run_gemm, &s, 16, false);
    }
}

/* Gradients of weights are summed up in the wide type; bias, GELU and its gradient come behind the
 * product; the sum may start from another matrix. */
static void gemm_with_what_comes_behind_it_agrees(void **state)
{
    (void)state;
    for (int i = 0; i < 48; i++) {
        int64_t side = odd[(size_t)i % NUM_ODD];
        int64_t other = odd[(size_t)(i / 7) % NUM_ODD];
        struct shape s = {
            .m = side,
            .n = other,
            .k = i % 5 == 4 ? 0 : 33,
            .trans_a = i & 1,
            .trans_b = i >> 1 & 1,
            .alpha = 1,
            .beta = i % 3 == 0   ? 1
                    : i % 3 == 1 ? 0
                                 : 0.5,
            .wide_c = i % 4 == 3,
            .c0 = i % 2,
            .bias = i % 3 < 2,
            .gelu = i % 5 == 1,
            .gelu_of = i % 5 >= 3,
            .aligned = i / 24,
            .skip = i < 24 ? i % 8 : 0,
            .floor = 1,
            /* Between the product and the rest C is rounded, where they aren't one. */
            .ulps_bf16 = 1.2,
        };
        char what[120];
        snprintf(what, sizeof what, "gemm %lldx%lld wide %d c0 %d bias %d gelu %d of %d beta %g",
                 (long long)s.m, (long long)s.n, s.wide_c, s.c0, s.bias, s.gelu, s.gelu_of, s.beta);
        check_parity(what, run_gemm, &s, 16, false);
    }
}

/* Large enough to be cut into tiles, with an uneven rest. */
static void gemm_in_tiles_agrees(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct shape s = {.m = i & 1 ? 300 : 517,
                          .n = 413,
                          .k = 150,
                          .trans_a = i & 1,
                          .trans_b = i >> 1,
                          .alpha = 1,
                          .beta = i & 1};
        check_parity("gemm in tiles", run_gemm, &s, 16, false);
    }
}

/* An empty sum leaves beta * C. */
static void gemm_without_k_scales_c(void **state)
{
    (void)state;
    check_parity("gemm k=0", run_gemm,
                 &(struct shape){.m = 3, .n = 5, .k = 0, .alpha = 1, .beta = 0.5}, 1, false);
    check_parity("gemm k=0 beta=0", run_gemm,
                 &(struct shape){.m = 3, .n = 5, .k = 0, .alpha = 1, .beta = 0}, 1, false);
}

static void embed_agrees(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_ODD; i++) {
        struct shape s = {.r = 75, .v = i % 2 ? 11 : 331, .d = odd[i]};
        check_parity("embed", run_embed, &s, 8, false);
    }
    for (size_t i = 0; i < NUM_ODD; i++) {
        struct shape s = {
            .r = 75, .v = i % 2 ? 11 : 331, .d = odd[i], .first = 1 + 40 * (int64_t)(i % 3)};
        check_parity("embed, a part of the vocabulary", run_embed, &s, 8, false);
    }
    check_parity("embed, no row here", run_embed, &(struct shape){.r = 9, .d = 5, .first = 3}, 8,
                 false);
    check_parity("embed wide", run_embed, &(struct shape){.r = 40, .v = 7, .d = 300}, 8, false);
}

/* One number alone is its own norm, and its gradient what is left of terms of up to eps^-1/2. */
static double cancelled(int64_t d)
{
    return d == 1 ? 300 : 0;
}

static void rmsnorm_agrees_with_aliases_and_accumulation(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_ODD; i++) {
        for (int mode = 0; mode < 3; mode++) {
            struct shape s = {.r = odd[(i + 3) % NUM_ODD],
                              .d = odd[i],
                              .alias = mode == 1,
                              .accumulate = mode == 2,
                              .floor = 1,
                              .floor_dx = cancelled(odd[i])};
            check_parity("rmsnorm", run_rmsnorm, &s, 24, false);
        }
    }
    check_parity("rmsnorm small x", run_rmsnorm,
                 &(struct shape){.r = 9, .d = 100, .size = 1e-4, .floor = 1}, 24, false);
}

/* One number alone is its own mean: rstd = eps^-1/2 times a difference that is nothing. */
static void layernorm_agrees_with_aliases_and_accumulation(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_ODD; i++) {
        for (int mode = 0; mode < 3; mode++) {
            struct shape s = {.r = odd[(i + 3) % NUM_ODD],
                              .d = odd[i],
                              .alias = mode == 1,
                              .accumulate = mode == 2,
                              .floor = odd[i] == 1 ? 300 : 1};
            check_parity("layernorm", run_layernorm, &s, 24, false);
        }
    }
    check_parity("layernorm small x", run_layernorm,
                 &(struct shape){.r = 9, .d = 100, .size = 1e-4, .floor = 1}, 24, false);
    check_parity("layernorm wide", run_layernorm, &(struct shape){.r = 5, .d = 12289, .floor = 1},
                 24, false);
}

/* What the mean leaves is a small part of each number: it keeps its digits. */
static void layernorm_far_from_zero_agrees(void **state)
{
    (void)state;
    check_parity("layernorm far out", run_layernorm,
                 &(struct shape){.r = 70, .d = 333, .centre = 100, .floor = 1}, 24 + 200, false);
}

static void rope_agrees_with_and_without_positions(void **state)
{
    (void)state;
    static const int64_t widths[] = {2, 6, 8, 34, 64, 128};
    for (size_t i = 0; i < 6; i++) {
        for (int mode = 0; mode < 4; mode++) {
            struct shape s = {.r = 51,
                              .t = 17,
                              .h = 1 + (int64_t)i % 3,
                              .e = widths[i],
                              .positions = mode & 1,
                              .backward = mode >> 1};
            check_parity("rope", run_rope, &s, 4, false);
        }
    }
}

/* An accelerator multiplies probabilities, and their gradients, as bf16. */
#define ATTENTION_BF16 1

static void attention_agrees_for_grouped_heads_and_segments(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 7, 63, 64, 65, 131};
    static const int64_t heads[][2] = {{1, 1}, {4, 4}, {6, 2}, {5, 1}, {4, 2}, {3, 3}, {2, 1}};
    static const int64_t widths[] = {8, 3, 16, 64, 33, 32, 128};
    for (size_t i = 0; i < 14; i++) {
        struct shape s = {.b = 1 + (int64_t)i % 3,
                          .t = lengths[i % 7],
                          .h = heads[i % 7][0],
                          .kv = heads[i % 7][1],
                          .e = widths[(i + i / 7) % 7],
                          .alpha = 0.3,
                          .segments = i % 2,
                          .floor = 0.1,
                          .ulps_bf16 = ATTENTION_BF16};
        char what[120];
        snprintf(what, sizeof what, "attention b%lld t%lld h%lld kv%lld e%lld", (long long)s.b,
                 (long long)s.t, (long long)s.h, (long long)s.kv, (long long)s.e);
        check_parity(what, run_attention, &s, 64, false);
    }
}

/* Long sequences take wider tiles, and sums over keys come in blocks. */
static void attention_agrees_for_long_sequences(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct shape s = {.b = 1,
                          .t = 300 + 21 * i,
                          .h = 2,
                          .kv = 1,
                          .e = i % 2 ? 16 : 72,
                          .alpha = 0.3,
                          .segments = i,
                          .floor = 0.1,
                          .ulps_bf16 = ATTENTION_BF16};
        check_parity("attention, long", run_attention, &s, 64, false);
    }
}

/* Keys that no query of a tile sees are left out; what is left must be neither more nor less, also
 * where segments aren't numbered upwards. */
static void attention_of_packed_documents_agrees(void **state)
{
    (void)state;
    static const int64_t documents[] = {1, 9, 32, 63, 70, 150, 1000};
    static const int64_t widths[] = {8, 64, 13, 32, 40, 128, 18};
    for (int64_t i = 0; i < 14; i++) {
        struct shape s = {.b = 2,
                          .t = i % 3 == 0 ? 200 : 331,
                          .h = 2,
                          .kv = 1 + i % 2,
                          .e = widths[(3 * i + i / 7) % 7],
                          .alpha = 0.3,
                          .segments = true,
                          .document = documents[i % 7],
                          .recur = i >= 7,
                          /* A token alone has no gradient of q and k: what is left is the rounding
                           * of a difference of two equal numbers of size 1. */
                          .floor = documents[i % 7] == 1 ? 1 : 0.1,
                          .ulps_bf16 = ATTENTION_BF16};
        char what[120];
        snprintf(what, sizeof what, "attention, documents of %lld %d", (long long)s.document,
                 s.recur);
        check_parity(what, run_attention, &s, 64, false);
    }
}

/* Tensor parallel over more ranks than there are key heads: each rank has one, for all its heads.
 */
static void attention_of_one_key_head_agrees(void **state)
{
    (void)state;
    static const int64_t heads[] = {1, 2, 3, 7, 16};
    for (size_t i = 0; i < 5; i++) {
        struct shape s = {.b = 2,
                          .t = 97,
                          .h = heads[i],
                          .kv = 1,
                          .e = i % 2 ? 24 : 48,
                          .alpha = 0.2,
                          .segments = i % 2,
                          .document = 30,
                          .floor = 0.1,
                          .ulps_bf16 = ATTENTION_BF16};
        check_parity("attention, one key head", run_attention, &s, 64, false);
    }
}

/* Scores of some thousands: nothing overflows; the error is that of rounding such a score. */
static void attention_is_stable_for_huge_scores(void **state)
{
    (void)state;
    struct shape s = {.b = 1,
                      .t = 70,
                      .h = 2,
                      .kv = 1,
                      .e = 16,
                      .alpha = 1,
                      .size = 16,
                      .segments = true,
                      .floor = 1,
                      .biased = true, /* a row's lse is rounded once, for all of it */
                      .ulps_bf16 = ATTENTION_BF16};
    check_parity("attention, huge scores", run_attention, &s, 16384, false);
}

/* e^x is one of ours: each value on its own, and far out on both sides. */
static void swiglu_agrees_for_each_element(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_ODD; i++) {
        struct shape s = {.n = odd[i] * 101, .size = i % 3 == 2 ? 8 : 1, .alias = i % 2};
        check_parity("swiglu", run_swiglu, &s, 1000, false);
    }
    check_parity("swiglu, small gates", run_swiglu, &(struct shape){.n = 999, .size = 0.05}, 16,
                 true);
    check_parity("swiglu, huge gates", run_swiglu, &(struct shape){.n = 999, .size = 1e4}, 16,
                 false);
}

static void gelu_agrees_for_each_element(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_ODD; i++) {
        struct shape s = {.n = odd[i] * 101,
                          .size = i % 3 == 2 ? 8 : 1,
                          .alias = i % 3 == 1,
                          .no_gradient = i % 3 == 2};
        check_parity("gelu", run_gelu, &s, 8, false);
    }
    check_parity("gelu near zero", run_gelu, &(struct shape){.n = 999, .size = 0.05}, 8, true);
    check_parity("gelu far out", run_gelu, &(struct shape){.n = 999, .size = 1e4}, 8, false);
}

/* A sum over r rows of either sign goes through sums of about r^1/2, whatever is left of them. */
static void biases_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_ODD; i++) {
        for (size_t j = 0; j < NUM_ODD; j++) {
            struct shape s = {.r = odd[i], .n = odd[j], .floor = sqrt((double)odd[i])};
            check_parity("bias", run_bias, &s, 8, false);
        }
    }
    check_parity("bias without rows", run_bias, &(struct shape){.n = 5}, 8, false);
    check_parity("bias without columns", run_bias, &(struct shape){.r = 5}, 8, false);
    check_parity("bias of many rows", run_bias, &(struct shape){.r = 5003, .n = 131}, 8, false);
}

static void add_and_scale_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_ODD; i++) {
        struct shape s = {.n = odd[i] * 97, .alias = i % 2};
        check_parity("add, scale", run_elementwise, &s, 3, true);
    }
}

/* The gradient of one row is measured against its largest entry, near dloss. */
static void cross_entropy_agrees_and_ignores(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_ODD; i++) {
        for (int mode = 0; mode < 3; mode++) {
            struct shape s = {.r = 29,
                              .v = odd[i] * (i == 5 ? 7 : 1),
                              .alias = mode == 1,
                              .no_gradient = mode == 2};
            check_parity("cross entropy", run_cross_entropy, &s, 8, false);
        }
    }
    /* In place: what is between the rows stays as it was. */
    check_parity("cross entropy, rows apart", run_cross_entropy,
                 &(struct shape){.r = 29, .v = 331, .ld = 336, .alias = true}, 8, false);
    check_parity("cross entropy, huge logits", run_cross_entropy,
                 &(struct shape){.r = 29, .v = 331, .size = 1e4}, 8, false);
    check_parity("cross entropy, long rows", run_cross_entropy, &(struct shape){.r = 2, .v = 50257},
                 8, false);
}

/* ld and parts for each vocabulary: even cuts, a short last part, parts without a valid column, one
 * column a part, and a part alone. */
static void vocabulary_parts_agree(void **state)
{
    (void)state;
    static const struct shape cuts[] = {
        {.r = 29, .v = 331, .ld = 331, .num_parts = 1},
        {.r = 29, .v = 331, .ld = 166, .num_parts = 2},
        {.r = 29, .v = 331, .ld = 83, .num_parts = 4},
        {.r = 29, .v = 5, .ld = 1, .num_parts = 5},
        {.r = 29, .v = 5, .ld = 2, .num_parts = 8},
        {.r = 1, .v = 1, .ld = 3, .num_parts = 2},
        {.r = 0, .v = 17, .ld = 9, .num_parts = 2},
        {.r = 64, .v = 64, .ld = 16, .num_parts = 4},
    };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        for (int mode = 0; mode < 3; mode++) {
            struct shape s = cuts[i];
            s.alias = mode == 1;
            s.no_gradient = mode == 2;
            check_parity("vocabulary parts", run_vocabulary_parts, &s, 8, false);
        }
    }
    check_parity("vocabulary parts, huge logits", run_vocabulary_parts,
                 &(struct shape){.r = 29, .v = 331, .ld = 111, .num_parts = 3, .size = 1e4}, 8,
                 false);
    check_parity("vocabulary parts, equal logits", run_vocabulary_parts,
                 &(struct shape){
                     .r = 29, .v = 331, .ld = 111, .num_parts = 3, .equal = true, .biased = true},
                 8, false);
    check_parity("vocabulary parts, long rows", run_vocabulary_parts,
                 &(struct shape){.r = 2, .v = 50257, .ld = 12565, .num_parts = 4}, 8, false);
}

/* With sequence parallel the last ranks may have no row at all: nothing is written, and parameters'
 * gradients stay what they are. */
static void nothing_to_do_is_legal(void **state)
{
    (void)state;
    static const struct shape none = {.d = 5, .v = 7, .t = 4, .h = 2, .kv = 1, .e = 4};
    check_parity("no rows: rmsnorm", run_rmsnorm, &none, 1, true);
    check_parity("no rows: layernorm", run_layernorm, &none, 1, true);
    check_parity("no rows: rope", run_rope, &none, 1, true);
    check_parity("no rows: embed", run_embed, &none, 1, true);
    check_parity("no rows: attention", run_attention, &none, 1, true);
    check_parity("no rows: cross entropy", run_cross_entropy, &none, 1, true);
    check_parity("no rows: swiglu", run_swiglu, &none, 1, true);
    check_parity("no rows: gelu", run_gelu, &none, 1, true);
    check_parity("no rows: add, scale", run_elementwise, &none, 1, true);
    check_parity("no elements: adamw", run_adamw, &none, 1, true);
    check_parity("no elements: sgd", run_sgd, &none, 1, true);
    for (int i = 0; i < 4; i++) {
        struct shape s = {
            .m = i & 1 ? 3 : 0, .n = i & 2 ? 3 : 0, .k = i == 3 ? 0 : 5, .alpha = 1, .beta = 1};
        check_parity("no rows or columns: gemm", run_gemm, &s, 1, true);
    }
}

static void sums_agree(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 17, 16384, 16385, 300001, 2100001};
    for (size_t i = 0; i < 7; i++) {
        check_parity("sums", run_sums, &(struct shape){.n = sizes[i]}, 1e-4, false);
    }
    for (int i = 0; i < 6; i++) {
        struct shape s = {.n = i < 3 ? 7 : 40007, .num_parts = 1 + 13 * (i % 3), .skip = i};
        check_parity("sums of spans", run_sums, &s, 1e-4, false);
    }
}

static void optimizers_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_ODD; i++) {
        struct shape s = {.n = odd[i] * 103,
                          .num_parts = i % 2 ? 1 + 5 * (int)i : 1,
                          .no_scale = i % 3 == 0,
                          .skip = (int64_t)i};
        check_parity("adamw", run_adamw, &s, 8, false);
        check_parity("sgd", run_sgd, &s, 4, false);
    }
    struct shape long_list = {.n = 4001, .num_parts = 40};
    check_parity("adamw, many runs", run_adamw, &long_list, 8, false);
    check_parity("sgd, many runs", run_sgd, &long_list, 4, false);
}

/* What isn't a number would spoil all weights for good. */
static void optimizers_do_nothing_where_the_scale_is_no_number(void **state)
{
    (void)state;
    struct shape s = {.n = 999, .num_parts = 3, .centre = NAN};
    check_parity("adamw without a scale", run_adamw, &s, 0, false);
    check_parity("sgd without a scale", run_sgd, &s, 0, false);
}

static void casts_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_ODD; i++) {
        check_parity("cast", run_cast, &(struct shape){.n = odd[i] * 211, .skip = (int64_t)i}, 1,
                     true);
    }
}

/* 0 = off; a norm that isn't finite gives no number to multiply by. */
static void clipping_agrees(void **state)
{
    (void)state;
    static const double squares[] = {0, 0.25, 1, 16, 1e18, INFINITY, NAN};
    for (size_t i = 0; i < 7; i++) {
        for (int mode = 0; mode < 3; mode++) {
            struct shape s = {.size = squares[i], .alpha = mode, .alias = i % 2};
            check_parity("clip", run_clip, &s, 1e-4, true);
        }
    }
}

/* A run that goes wrong must show: what depends on a NaN is one, and nothing else is. Attention
 * takes keys by tiles, in which a NaN may spread. */
static void a_nan_comes_through(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        op_run run;
        struct shape s;
    } cases[] = {
        {"gemm", run_gemm, {.m = 70, .n = 70, .k = 70, .alpha = 1}},
        {"gemm, aligned", run_gemm, {.m = 64, .n = 72, .k = 80, .alpha = 1, .aligned = true}},
        {"gemm, gelu",
         run_gemm,
         {.m = 9, .n = 7, .k = 8, .alpha = 1, .bias = true, .gelu = true, .ulps_bf16 = 1.2}},
        {"gemm, slope",
         run_gemm,
         {.m = 9, .n = 7, .k = 8, .alpha = 1, .gelu_of = true, .ulps_bf16 = 1.2}},
        {"embed", run_embed, {.r = 40, .v = 7, .d = 33}},
        {"rmsnorm", run_rmsnorm, {.r = 5, .d = 37, .floor = 1}},
        {"rmsnorm, wide", run_rmsnorm, {.r = 3, .d = 1040, .accumulate = true, .floor = 1}},
        {"layernorm", run_layernorm, {.r = 5, .d = 37, .floor = 1}},
        {"layernorm, wide", run_layernorm, {.r = 3, .d = 1040, .accumulate = true, .floor = 1}},
        {"rope", run_rope, {.r = 9, .t = 5, .h = 2, .e = 8}},
        {"attention",
         run_attention,
         {.b = 1,
          .t = 70,
          .h = 2,
          .kv = 1,
          .e = 16,
          .alpha = 0.3,
          .floor = 0.1,
          .ulps_bf16 = ATTENTION_BF16,
          .nan_spreads = true}},
        {"attention, documents",
         run_attention,
         {.b = 1,
          .t = 70,
          .h = 2,
          .kv = 1,
          .e = 16,
          .alpha = 0.3,
          .floor = 0.1,
          .segments = true,
          .ulps_bf16 = ATTENTION_BF16,
          .nan_spreads = true}},
        {"swiglu", run_swiglu, {.n = 999}},
        {"gelu", run_gelu, {.n = 999}},
        {"bias", run_bias, {.r = 70, .n = 37, .floor = 1}},
        {"add, scale", run_elementwise, {.n = 999}},
        {"cast", run_cast, {.n = 999}},
        {"cross entropy", run_cross_entropy, {.r = 5, .v = 331}},
        {"adamw", run_adamw, {.n = 999, .num_parts = 3}},
        {"sgd", run_sgd, {.n = 999, .num_parts = 3}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint64_t of = 1; of <= 4; of++) {
            struct shape s = cases[i].s;
            char what[120];
            s.nan_of = of;
            s.nan_at = 1 + (int64_t)(of * 1009 + i * 31) % 97;
            snprintf(what, sizeof what, "a NaN in input %d of %s", (int)of, cases[i].what);
            check_parity(what, cases[i].run, &s, 64, false);
        }
    }
}

/* ops_test [PATTERN]: only tests whose name fits. */
int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm_agrees_for_every_side_and_transpose),
        cmocka_unit_test(gemm_with_what_comes_behind_it_agrees),
        cmocka_unit_test(gemm_in_tiles_agrees),
        cmocka_unit_test(gemm_without_k_scales_c),
        cmocka_unit_test(embed_agrees),
        cmocka_unit_test(rmsnorm_agrees_with_aliases_and_accumulation),
        cmocka_unit_test(layernorm_agrees_with_aliases_and_accumulation),
        cmocka_unit_test(layernorm_far_from_zero_agrees),
        cmocka_unit_test(rope_agrees_with_and_without_positions),
        cmocka_unit_test(attention_agrees_for_grouped_heads_and_segments),
        cmocka_unit_test(attention_agrees_for_long_sequences),
        cmocka_unit_test(attention_of_packed_documents_agrees),
        cmocka_unit_test(attention_of_one_key_head_agrees),
        cmocka_unit_test(attention_is_stable_for_huge_scores),
        cmocka_unit_test(swiglu_agrees_for_each_element),
        cmocka_unit_test(gelu_agrees_for_each_element),
        cmocka_unit_test(biases_agree),
        cmocka_unit_test(add_and_scale_agree),
        cmocka_unit_test(cross_entropy_agrees_and_ignores),
        cmocka_unit_test(vocabulary_parts_agree),
        cmocka_unit_test(nothing_to_do_is_legal),
        cmocka_unit_test(sums_agree),
        cmocka_unit_test(optimizers_agree),
        cmocka_unit_test(optimizers_do_nothing_where_the_scale_is_no_number),
        cmocka_unit_test(casts_agree),
        cmocka_unit_test(a_nan_comes_through),
        cmocka_unit_test(clipping_agrees),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
