#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/unit/ckpt_fixture.h"

static void add(struct param_table *t, const char *name, int64_t layer, int64_t rows, int64_t cols)
{
    struct param *p = &t->params[t->num_params++];
    snprintf(p->name, sizeof p->name, "%s", name);
    p->layer = layer;
    p->num_dims = cols ? 2 : 1;
    p->shape[0] = p->local_shape[0] = rows;
    p->shape[1] = p->local_shape[1] = cols;
    p->numel = rows * (cols ? cols : 1);
    p->offset = t->flat_numel;
    p->init_std = 0.02;
    p->init_ones = !cols;
    t->flat_numel += (p->numel + PARAMS_ALIGN_NUMEL - 1) / PARAMS_ALIGN_NUMEL * PARAMS_ALIGN_NUMEL;
}

static void make_table(struct param_table *t)
{
    *t = (struct param_table){.params = calloc(32, sizeof *t->params)};
    assert_non_null(t->params);
    add(t, "lm_head.weight", -1, 37, 12);
    add(t, "model.norm.weight", -1, 12, 0);
    for (int layer = 1; layer >= 0; layer--) {
        static const struct {
            const char *name;
            int64_t rows, cols;
        } lines[] = {{"self_attn.q_proj", 12, 12},
                     {"self_attn.k_proj", 6, 12},
                     {"mlp.up_proj", 17, 12},
                     {"mlp.down_proj", 12, 17},
                     {"input_layernorm", 12, 0}};
        for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
            char name[PARAM_NAME_MAX];
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, lines[i].name);
            add(t, name, layer, lines[i].rows, lines[i].cols);
        }
    }
    add(t, "model.embed_tokens.weight", -1, 37, 12);
}

/* Any bits at all: a NaN's payload must come back too. */
static void fill_random(const struct fixture *f, void *flat, uint64_t seed)
{
    size_t size = dtype_size(f->state.dtype);
    for (int32_t i = 0; i < f->table.num_params; i++) {
        const struct param *p = &f->table.params[i];
        for (int64_t e = 0; e < p->numel; e++) {
            uint64_t bits = rng_u64(seed, (uint64_t)i, (uint64_t)e);
            /* Signalling NaNs turn quiet when a processor touches them; none here. */
            bits = size == 8 ? bits | (uint64_t)1 << 51 : bits | (uint64_t)1 << 22;
            memcpy((char *)flat + (size_t)(p->offset + e) * size, &bits, size);
        }
    }
}

void fixture_new(struct fixture *f, enum dtype dtype, bool moments, uint64_t seed)
{
    *f = (struct fixture){0};
    make_table(&f->table);
    f->bytes = (size_t)f->table.flat_numel * dtype_size(dtype);
    f->state = (struct ckpt_state){
        .table = &f->table, .dtype = dtype, .weights = {.data = calloc(1, f->bytes)}};
    assert_non_null(f->state.weights.data);
    if (moments) {
        f->state.exp_avg.data = calloc(1, f->bytes);
        f->state.exp_avg_sq.data = calloc(1, f->bytes);
        assert_non_null(f->state.exp_avg.data);
        assert_non_null(f->state.exp_avg_sq.data);
    }
    if (seed) {
        fill_random(f, f->state.weights.data, seed);
    }
    if (seed && moments) {
        fill_random(f, f->state.exp_avg.data, seed + 1);
        fill_random(f, f->state.exp_avg_sq.data, seed + 2);
    }
}

void fixture_like(struct fixture *f, const struct fixture *other)
{
    fixture_new(f, other->state.dtype, other->state.exp_avg.data != NULL, 0);
}

void fixture_free(struct fixture *f)
{
    free(f->table.params);
    free(f->state.weights.data);
    free(f->state.exp_avg.data);
    free(f->state.exp_avg_sq.data);
}

void fixture_assert_equal(const struct fixture *a, const struct fixture *b)
{
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->state.weights.data, b->state.weights.data, a->bytes);
    if (b->state.exp_avg.data) {
        assert_memory_equal(a->state.exp_avg.data, b->state.exp_avg.data, a->bytes);
        assert_memory_equal(a->state.exp_avg_sq.data, b->state.exp_avg_sq.data, a->bytes);
    }
}

struct ckpt_meta fixture_meta(int64_t step, int32_t attempt)
{
    return (struct ckpt_meta){.step = step,
                              .consumed_samples = step * 12,
                              .seed = 0xFEDCBA9876543210u,
                              .attempt = attempt,
                              .loss = 1.0 / 3};
}

int fixture_save_part(const char *parent, const struct fixture *f, const struct ckpt_meta *meta,
                      int32_t writer, int32_t num_writers, struct error *err)
{
    struct ckpt_state state = f->state;
    struct ckpt_save *save;
    state.replica_idx = writer;
    state.num_replicas = num_writers;
    if (ckpt_save_write(&save, parent, &state, meta, writer, num_writers, err) != 0) {
        return -1;
    }
    int rc = ckpt_save_seal(save, err);
    ckpt_save_free(save);
    return rc;
}

void fixture_checkpoint(const char *parent, const struct fixture *f, int64_t step, char dir[256])
{
    struct ckpt_meta meta = fixture_meta(step, 1);
    struct error err = {0};
    int64_t bytes;
    if (fixture_save_part(parent, f, &meta, 0, 1, &err) != 0 ||
        ckpt_commit(parent, &meta, 1, dir, 256, &bytes, &err) != 0) {
        fail_msg("%s", err.text);
    }
}
