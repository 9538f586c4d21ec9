/* Plans of models on H100 in bf16, figure by figure. */
#include "plan_fixture.h"

static int64_t arena(const Plan *p, ArenaKind kind)
{
    for (size_t i = 0; i < p->memory->n_arenas; i++) {
        if (p->memory->arenas[i]->kind == kind) {
            return p->memory->arenas[i]->bytes;
        }
    }
    return 0;
}

static void on_h100(int64_t data, int64_t zero_stage, int64_t seq_len, int64_t micro,
                    int64_t micro_batches)
{
    plan_case_cluster(c, 1, 8, 64, 80000000000);
    for (size_t i = 0; i < 8; i++) {
        c->devices[i].type = (char *)"h100";
        c->devices[i].has_peak_flops_fp32 = 0;
        c->devices[i].peak_flops_fp32 = 0;
    }
    c->layout.data = data;
    c->layout.zero_stage = zero_stage;
    c->training.seq_len = seq_len;
    c->training.micro_batch_size = micro;
    c->training.global_batch_size = data * micro * micro_batches;
    c->data_facts.num_tokens = (int64_t)1 << 40;
    c->config.max_position_embeddings = seq_len;
    c->config.tie_word_embeddings = 0;
}

/* GPT-2 124M, 16 x 1024 tokens on one H100: 18 bytes a parameter, 768 x (50257 + 1024) of them in
 * the embeddings. */
static void gpt2_124m_on_one_h100(void **state)
{
    (void)state;
    const int64_t n = 124439808, rows = 16 * 1024, d = 768;
    c->config.model_type = (char *)"gpt2";
    plan_case_config(c, 12, d, 4 * d, 12, 12, 50257);
    on_h100(1, 0, 1024, 16, 1);
    c->config.tie_word_embeddings = 1;
    Plan *p = plan_case_build(c);
    const MemoryEstimate *m = p->memory;
    assert_int_equal(p->model->num_params, n);
    assert_string_equal(p->spec->training->precision, "bf16");
    assert_int_equal(arena(p, ARENA_WEIGHTS), 2 * n);
    assert_int_equal(arena(p, ARENA_MASTERS), 4 * n);
    assert_int_equal(arena(p, ARENA_GRADS), 4 * n);
    assert_int_equal(arena(p, ARENA_EXP_AVG) + arena(p, ARENA_EXP_AVG_SQ), 8 * n);
    assert_int_equal(m->params_bytes + m->grads_bytes + m->optimizer_bytes, 18 * n);
    assert_int_equal(m->snapshot_bytes, 12 * n);
    assert_int_equal(m->logits_bytes, rows * 50272 * 2); /* rows at multiples of 32 bytes */
    /* A block: its input, what attention and MLP read, and what is between them (4 D); q, k, v and
     * o (4 D); the MLP's two hidden rows (8 D); lse and two norms' statistics. */
    int64_t block = rows * (2 * 16 * d + 4 * 12 + 2 * 2 * 4);
    assert_int_equal(m->activations_bytes, 12 * block + rows * (2 * 2 * d + 2 * 4));
    assert_true(m->total_bytes < 20000000000);
    assert_true(p->peak_flops == 989e12);
    assert_true(p->cost->mfu > 0.3 && p->cost->mfu <= 0.6);
    plan__free_unpacked(p, NULL);
}

/* Llama-3-8B, ZeRO-3 on eight H100: of 18 bytes a parameter each holds an eighth, and two units of
 * bf16 weights and of fp32 gradients besides. */
static void llama_3_8b_on_eight_h100(void **state)
{
    (void)state;
    const int64_t n = 8030261248, d = 4096, v = 128256, rows = 8192;
    const int64_t block = 2 * d * d + 2 * d * 1024 + 3 * d * 14336 + 2 * d;
    plan_case_config(c, 32, d, 14336, 32, 8, v);
    on_h100(8, 3, 8192, 1, 2);
    Plan *p = plan_case_build(c);
    const MemoryEstimate *m = p->memory;
    assert_int_equal(p->model->num_params, n);
    assert_int_equal(arena(p, ARENA_WEIGHTS), 2 * n / 8);
    assert_int_equal(arena(p, ARENA_MASTERS), 4 * n / 8);
    assert_int_equal(arena(p, ARENA_GRADS), 4 * n / 8);
    assert_int_equal(m->params_bytes + m->grads_bytes + m->optimizer_bytes, 18 * n / 8);
    assert_int_equal(m->logits_bytes, rows * v * 2);
    /* The head's slot holds it and the final norm; the others a block, or the embedding. */
    int64_t weights = arena(p, ARENA_WEIGHT_SLOTS), grads = arena(p, ARENA_GRAD_SLOTS);
    assert_true(weights >= 2 * (v * d + block) && weights <= 2 * (3 * (v * d) + d));
    assert_true(grads >= 4 * (v * d + block) && grads <= 4 * (3 * (v * d) + d));
    assert_int_equal(m->gathered_bytes, weights + grads);
    int64_t a_token = 8 * d + 4 * 32 * 128 + 4 * 8 * 128 + 6 * 14336 + 4 * 32 + 2 * 4;
    assert_int_equal(m->activations_bytes, rows * (32 * a_token + 2 * 2 * d + 4));
    assert_int_equal(m->host_bytes - m->snapshot_bytes, arena(p, ARENA_HOST));
    assert_int_equal(m->snapshot_bytes, 12 * n / 8);
    assert_true(m->total_bytes < 80000000000);
    assert_true(p->cost->mfu > 0.4 && p->cost->mfu <= 0.6);
    plan__free_unpacked(p, NULL);
    /* Without ZeRO 144.5 GB of state alone. */
    c->layout.zero_stage = 0;
    plan_case_refused(c, "weights, gradients and optimizer 144.54");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(gpt2_124m_on_one_h100),
        T(llama_3_8b_on_eight_h100),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
