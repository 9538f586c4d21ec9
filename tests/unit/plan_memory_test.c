/* Memory of every dimension against published figures and closed forms. Sources: Rajbhandari et al.
 * 2020 (ZeRO), Narayanan et al. 2021 (GPT-3 on 1,024), Korthikanti et al. 2022 (activations), the
 * Llama 3 report. */
#include "plan/memory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/family.h"
#include "plan/stages.h"
#include "plan_case.h"

static struct plan_case *c;
static struct spec_unbuilt unbuilt;

static int setup(void **state)
{
    (void)state;
    c = plan_case_new();
    c->input.unbuilt = &unbuilt;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    plan_case_free(c);
    return 0;
}

static double state_gb(const MemoryEstimate *m)
{
    return (double)(m->params_bytes + m->grads_bytes + m->optimizer_bytes) / 1e9;
}

/* ---- state ---- */

/* The figure as it is published: to its last digit. */
static void assert_figure(double value, double figure, double digit)
{
    if (value < figure - digit / 2 - 1e-9 || value > figure + digit / 2 + 1e-9) {
        fail_msg("%.6g is not %.6g", value, figure);
    }
}

/* Weights in bf16, gradients in bf16 or fp32, fp32 weights and two moments: 16 or 18 bytes a
 * parameter, and what of that ZeRO shares. numel: parameters of a rank after tensor and pipeline.
 */
static void sharded_state_is_as_published(void **state)
{
    (void)state;
    static const struct {
        double numel;
        const char *grads;
        int64_t data;
        double gb[4];
    } cases[] = {
        {8.03e9, "bf16", 8, {128.5, 44.2, 30.1, 16.1}},
        {8.03e9, "fp32", 8, {144.5, 60.2, 32.1, 18.1}},
        {7.5e9, "bf16", 64, {120, 31.4, 16.6, 1.88}},
        {70e9, "bf16", 64, {1120, 293.1, 155.3, 17.5}},
        {70e9 / 4, "bf16", 16, {280, 0, 0, 0}},
        {70e9 / 32, "bf16", 2, {35, 0, 0, 0}},
        {175e9 / 32, "bf16", 32, {87.5, 23.9, 0, 0}},
        {405e9 / 128, "bf16", 64, {50.6, 0, 0, 0}},
    };
    c->training.precision = (char *)"bf16";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int64_t zero = 0; zero < 4 && cases[i].gb[zero] > 0; zero++) {
            struct memory_load load = {.dense_numel = (int64_t)cases[i].numel};
            MemoryEstimate m;
            c->training.grad_dtype = (char *)cases[i].grads;
            c->layout.data = cases[i].data;
            c->layout.zero_stage = zero;
            memory_estimate(&m, &c->config, &c->spec, &load);
            assert_figure(state_gb(&m), cases[i].gb[zero], cases[i].gb[zero] < 10 ? 0.01 : 0.1);
        }
    }
}

static void state_bytes_a_parameter_follow_precision(void **state)
{
    (void)state;
    static const struct {
        const char *precision, *grads, *optimizer;
        int64_t bytes;
    } cases[] = {
        {"fp32", "fp32", "adamw", 16}, {"bf16", "fp32", "adamw", 18}, {"bf16", "bf16", "adamw", 16},
        {"fp16", "fp32", "adamw", 18}, {"bf16", "fp32", "sgd", 10},   {"fp64", "fp32", "adamw", 32},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c->training.precision = (char *)cases[i].precision;
        c->training.grad_dtype = (char *)cases[i].grads;
        c->optimizer.name = (char *)cases[i].optimizer;
        assert_int_equal(memory_state_size(&c->training), cases[i].bytes);
    }
}

/* Experts lie on d * c / e ranks each; more than that can't share them. */
static void experts_are_shared_among_their_own_replicas(void **state)
{
    (void)state;
    struct memory_load load = {.dense_numel = 1000, .expert_numel = 8000};
    MemoryEstimate m;
    c->layout.data = 16;
    c->layout.expert = 8;
    c->layout.zero_stage = 1;
    memory_estimate(&m, &c->config, &c->spec, &load);
    assert_int_equal(m.optimizer_bytes, 8 * (63 + 4000));
    c->layout.expert = 16;
    memory_estimate(&m, &c->config, &c->spec, &load);
    assert_int_equal(m.optimizer_bytes, 8 * (63 + 8000));
    c->layout.expert = 8;
    c->layout.shard_size = 4;
    memory_estimate(&m, &c->config, &c->spec, &load);
    assert_int_equal(m.optimizer_bytes, 8 * (250 + 4000));
}

/* ZeRO-3 holds the unit at work and the next one whole; from ZeRO-2 on there are a unit's gradients
 * and those of the one before, which are being summed. What the stage's slots hold counts where it
 * has them. */
static void zero_three_gathers_two_units(void **state)
{
    (void)state;
    struct memory_load load = {.dense_numel = 100000, .unit_numel = 1000};
    MemoryEstimate m;
    c->layout.data = 4;
    static const int64_t elements[4] = {0, 0, 2, 4};
    for (int64_t zero = 0; zero < 4; zero++) {
        c->layout.zero_stage = zero;
        memory_estimate(&m, &c->config, &c->spec, &load);
        assert_int_equal(m.gathered_bytes, 4000 * elements[zero]);
    }
    load.grad_slots = 1500;
    load.weight_slots = 1700;
    memory_estimate(&m, &c->config, &c->spec, &load);
    assert_int_equal(m.gathered_bytes, 4 * 3200);
    c->layout.data = 1;
    memory_estimate(&m, &c->config, &c->spec, &load);
    assert_int_equal(m.gathered_bytes, 0);
}

/* PipeDream keeps one version of the weights for each micro-batch in flight. */
static void pipedream_keeps_versions_of_weights(void **state)
{
    (void)state;
    struct memory_load load = {.stage = 1, .dense_numel = 1000};
    MemoryEstimate m;
    c->layout.pipeline = 4;
    c->layout.schedule = (char *)"pipedream";
    memory_estimate(&m, &c->config, &c->spec, &load);
    assert_int_equal(m.params_bytes, 3 * 4000);
    assert_int_equal(m.grads_bytes, 4000);
}

/* ---- activations ---- */

static void be_gpt(int64_t layers, int64_t d, int64_t h, int64_t seq_len)
{
    c->config.model_type = (char *)"gpt2";
    plan_case_config(c, layers, d, 4 * d, h, h, 51200);
    c->config.max_position_embeddings = seq_len;
    c->config.tie_word_embeddings = 1;
    c->training.seq_len = seq_len;
    c->training.precision = (char *)"bf16";
}

/* GPT: 34 T B D + 5 H T^2 B a layer; with tensor parallel (10 + 24 / t) and 5 / t; with sequence
 * parallel all of it by t. What selective recomputation drops is the 5 H T^2. */
static void gpt_activations_have_their_closed_form(void **state)
{
    (void)state;
    const enum family_attention attention = FAMILY_UNFUSED_WITH_DROPOUT;
    be_gpt(2, 128, 8, 64);
    c->training.micro_batch_size = 3;
    double tbd = 64.0 * 3 * 128, htt = 8.0 * 64 * 64 * 3, cheap;
    for (int64_t t = 1; t <= 8; t *= 2) {
        double n = (double)t;
        c->layout.tensor = t;
        c->layout.sequence_parallel = 0;
        assert_true(memory_block_bytes(&c->config, &c->spec, attention, &cheap) ==
                    (10 + 24 / n) * tbd + 5 * htt / n);
        assert_true(cheap == 5 * htt / n);
        c->layout.sequence_parallel = 1;
        assert_true(memory_block_bytes(&c->config, &c->spec, attention, &cheap) ==
                    (34 * tbd + 5 * htt) / n);
    }
    c->layout.context = 2;
    assert_true(memory_block_bytes(&c->config, &c->spec, attention, &cheap) ==
                (34 * tbd + 5 * htt) / 16);
}

/* Llama in bf16 with fused attention, a token: 8 D + 4 H dh + 4 K dh + 6 F + 4 H bytes, and two
 * norm statistics of 4 bytes. */
static void llama_activations_have_their_closed_form(void **state)
{
    (void)state;
    const enum family_attention attention = FAMILY_FUSED;
    plan_case_config(c, 32, 4096, 14336, 32, 8, 128256);
    c->training.precision = (char *)"bf16";
    c->training.seq_len = 8192;
    double cheap, a_token = 8.0 * 4096 + 4.0 * 4096 + 4.0 * 1024 + 6.0 * 14336 + 4.0 * 32 + 8;
    assert_true(memory_block_bytes(&c->config, &c->spec, attention, &cheap) == 8192 * a_token);
    /* Fewer KV heads than tensor ranks: each rank keeps one. */
    c->layout.tensor = 16;
    c->layout.sequence_parallel = 1;
    a_token = (8.0 * 4096 + 4.0 * 4096 + 6.0 * 14336 + 4.0 * 32 + 8) / 16 + 4.0 * 128;
    assert_true(memory_block_bytes(&c->config, &c->spec, attention, &cheap) == 8192 * a_token);
}

/* Sequence parallel and selective recomputation save about five times over tensor parallel alone:
 * 22B, 175B, 530B and 1T with t = 8. */
static void sequence_parallel_and_selective_recomputation_save_five_times(void **state)
{
    (void)state;
    static const int64_t models[][3] = {
        {48, 6144, 64}, {96, 12288, 96}, {105, 20480, 128}, {128, 25600, 160}};
    c->layout.tensor = 8;
    for (size_t i = 0; i < 4; i++) {
        be_gpt(models[i][0], models[i][1], models[i][2], 2048);
        struct memory_load load = {.num_layers = models[i][0],
                                   .attention = FAMILY_UNFUSED_WITH_DROPOUT};
        RecomputeSpec recompute = RECOMPUTE_SPEC__INIT;
        c->training.recompute = &recompute;
        MemoryEstimate before, after;
        c->layout.sequence_parallel = 0;
        memory_estimate(&before, &c->config, &c->spec, &load);
        c->layout.sequence_parallel = 1;
        recompute.mode = (char *)"selective";
        memory_estimate(&after, &c->config, &c->spec, &load);
        double saved = (double)before.activations_bytes / (double)after.activations_bytes;
        assert_true(saved > 4.8 && saved < 6.3);
        c->training.recompute = NULL;
    }
}

/* Full: the input of every layer and one layer whole; every k: of every k-th, and k whole. */
static void full_recomputation_keeps_inputs(void **state)
{
    (void)state;
    const enum family_attention attention = FAMILY_FUSED;
    plan_case_config(c, 32, 4096, 14336, 32, 8, 128256);
    c->training.precision = (char *)"bf16";
    c->training.seq_len = 1024;
    RecomputeSpec recompute = RECOMPUTE_SPEC__INIT;
    recompute.mode = (char *)"full";
    c->training.recompute = &recompute;
    struct memory_load load = {.num_layers = 32};
    double cheap, block = memory_block_bytes(&c->config, &c->spec, attention, &cheap);
    for (int64_t k = 1; k <= 32; k *= 4) {
        MemoryEstimate m;
        recompute.every = k;
        memory_estimate(&m, &c->config, &c->spec, &load);
        double inputs = 2.0 * 1024 * 4096 * 32 / (double)k;
        double all = inputs + (double)k * block;
        assert_int_equal(m.activations_bytes, (int64_t)(all < 32 * block ? all : 32 * block));
    }
}

/* p = 4, m = 8, the first and the last stage. */
static void schedules_hold_their_micro_batches(void **state)
{
    (void)state;
    static const struct {
        const char *schedule;
        int64_t chunks;
        double first, last;
    } cases[] = {
        {"gpipe", 1, 8, 8},
        {"1f1b", 1, 4, 1},
        {"interleaved", 2, 4 + 3.0 / 2, 2.5},
        {"interleaved", 4, 4.75, 13.0 / 4},
        {"zb-h1", 1, 4, 1},
        {"zb-h2", 1, 7, 1},
        {"zb-v", 2, 4, 4},
        {"dualpipe", 1, 2.5, 2.5},
        {"pipedream", 1, 4, 1},
    };
    c->layout.pipeline = 4;
    c->layout.data = 1;
    c->training.global_batch_size = 8;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c->layout.schedule = (char *)cases[i].schedule;
        c->layout.virtual_stages = cases[i].chunks;
        assert_true(memory_in_flight(&c->spec, 0) == cases[i].first);
        assert_true(memory_in_flight(&c->spec, 3) == cases[i].last);
    }
    c->training.global_batch_size = 2;
    c->layout.schedule = (char *)"1f1b";
    assert_true(memory_in_flight(&c->spec, 0) == 2);
}

/* Logits in the type of activations, a slice of the vocabulary on each tensor rank: in bf16
 * 2 T B V / t, on the last stage. (The published 4 T B V / t is of fp32 logits.) */
static void logits_lie_on_the_last_stage(void **state)
{
    (void)state;
    plan_case_config(c, 32, 4096, 14336, 32, 8, 128256);
    c->training.precision = (char *)"bf16";
    c->training.seq_len = 4096;
    c->layout.tensor = 8;
    struct memory_load load = {.num_layers = 8, .has_head = true};
    MemoryEstimate m;
    memory_estimate(&m, &c->config, &c->spec, &load);
    assert_int_equal(m.logits_bytes, 2 * 4096LL * 128256 / 8);
    c->training.precision = (char *)"fp32";
    memory_estimate(&m, &c->config, &c->spec, &load);
    assert_int_equal(m.logits_bytes, 4 * 4096LL * 128256 / 8);
    load.has_head = false;
    memory_estimate(&m, &c->config, &c->spec, &load);
    assert_int_equal(m.logits_bytes, 0);
}

/* ---- whole plans ---- */

static void lay_out(int64_t data, int64_t tensor, int64_t pipeline, int64_t micro_batches)
{
    c->layout.data = data;
    c->layout.tensor = tensor;
    c->layout.pipeline = pipeline;
    c->training.global_batch_size = data * micro_batches;
    c->data_facts.num_tokens = (int64_t)1 << 40;
    c->config.max_position_embeddings = 131072;
}

/* What a plan says of a model's state, for the published number of parameters in place of its own
 * (padding makes no digit of difference). */
static double plan_state_gb(double published)
{
    Plan *p = plan_case_build(c);
    double gb = state_gb(p->memory) * published / (double)p->model->num_params;
    plan__free_unpacked(p, NULL);
    return gb;
}

/* Models of 8, 7.5 and 70e9 parameters, whole plans with the lists that ranks would walk: gradients
 * in bf16 and in fp32, every ZeRO stage. */
static void whole_plans_hold_the_published_state(void **state)
{
    (void)state;
    static const struct {
        int64_t layers, d, f, h, kv, v, data;
        double published;
        const char *grads;
        double gb[4];
    } cases[] = {
        {32, 4096, 14336, 32, 8, 128256, 8, 8.03e9, "bf16", {128.5, 44.2, 30.1, 16.1}},
        {32, 4096, 14336, 32, 8, 128256, 8, 8.03e9, "fp32", {144.5, 60.2, 32.1, 18.1}},
        {36, 4096, 11008, 32, 32, 32000, 64, 7.5e9, "bf16", {120, 31.4, 16.6, 1.88}},
        {80, 8192, 28672, 64, 8, 128256, 64, 70e9, "bf16", {1120, 293.1, 155.3, 17.5}},
    };
    plan_case_cluster(c, 8, 8, 8, 0);
    c->training.precision = (char *)"bf16";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plan_case_config(c, cases[i].layers, cases[i].d, cases[i].f, cases[i].h, cases[i].kv,
                         cases[i].v);
        lay_out(cases[i].data, 1, 1, 1);
        c->training.grad_dtype = (char *)cases[i].grads;
        for (int64_t zero = 0; zero < 4; zero++) {
            c->layout.zero_stage = zero;
            assert_figure(plan_state_gb(cases[i].published), cases[i].gb[zero],
                          cases[i].gb[zero] < 10 ? 0.01 : 0.1);
        }
    }
}

/* GPT-3 on 1,024 devices of 80 GB: TP8 x PP4 x DP32. 87.5 GB of state don't fit; with ZeRO-1 they
 * are 23.9. (96 layers, D 12288: 174.6e9 parameters; stages with embedding or head hold more.) */
static void gpt3_on_1024_needs_zero_one(void **state)
{
    (void)state;
    be_gpt(96, 12288, 96, 2048);
    plan_case_cluster(c, 128, 8, 64, 80000000000);
    lay_out(32, 8, 4, 48);
    c->config.max_position_embeddings = 2048;
    c->training.grad_dtype = (char *)"bf16";
    c->layout.sequence_parallel = 1;
    RecomputeSpec recompute = RECOMPUTE_SPEC__INIT;
    recompute.mode = (char *)"selective";
    c->training.recompute = &recompute;
    plan_case_refused(c, "has 80.00");
    unbuilt = (struct spec_unbuilt){(char *[]){(char *)"a mark"}, 1};
    plan_case_refused(c, "parallel.zero_stage, more tensor ranks or more pipeline ranks lower it");
    unbuilt = (struct spec_unbuilt){0};
    c->layout.zero_stage = 1;
    Plan *p = plan_case_build(c);
    assert_true(state_gb(p->memory) > 23.5 && state_gb(p->memory) < 24.3);
    assert_int_equal(p->n_stages, 4);
    plan__free_unpacked(p, NULL);
}

/* Llama-3-405B over 16 stages: the first and the last hold one layer less, without being told. */
static void stages_with_embedding_or_head_get_a_layer_less(void **state)
{
    (void)state;
    plan_case_config(c, 126, 16384, 53248, 128, 8, 128256);
    plan_case_cluster(c, 16, 8, 64, 0);
    lay_out(1, 8, 16, 32);
    c->training.seq_len = 8192;
    c->training.precision = (char *)"bf16";
    Plan *p = plan_case_build(c);
    int64_t sum = 0;
    for (size_t i = 0; i < 16; i++) {
        assert_int_equal(stage_num_layers(p->stages[i]), i == 0 || i == 15 ? 7 : 8);
        assert_int_equal(p->stages[i]->layer_begin, sum);
        sum += stage_num_layers(p->stages[i]);
    }
    assert_int_equal(sum, 126);
    plan__free_unpacked(p, NULL);
    int64_t given[16] = {6, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8};
    c->layout.n_layers_per_stage = 16;
    c->layout.layers_per_stage = given;
    p = plan_case_build(c);
    assert_int_equal(stage_num_layers(p->stages[0]), 6);
    assert_int_equal(stage_num_layers(p->stages[15]), 8);
    plan__free_unpacked(p, NULL);
    given[3] = 9;
    plan_case_refused(c, "parallel.layers_per_stage: they make 127 layers, the model has 126");
}

/* Interleaved: chunk i of stage r is the (i p + r)-th of the line. zb-v: down and up again.
 * dualpipe: a stage and its mirror. */
static void chunks_lie_as_the_schedule_wants(void **state)
{
    (void)state;
    static const struct {
        const char *schedule;
        int64_t virtual_stages, first[2], last[2]; /* begins of the chunks of stages 0 and 3 */
    } cases[] = {
        {"interleaved", 2, {0, 16}, {12, 28}},
        {"zb-v", 2, {0, 28}, {12, 16}},
        {"dualpipe", 1, {0, 24}, {0, 24}},
    };
    plan_case_config(c, 32, 64, 136, 8, 4, 2);
    plan_case_cluster(c, 1, 4, 8, 0);
    lay_out(1, 1, 4, 8);
    for (size_t i = 0; i < 3; i++) {
        c->layout.schedule = (char *)cases[i].schedule;
        c->layout.virtual_stages = cases[i].virtual_stages;
        Plan *p = plan_case_build(c);
        for (int32_t k = 0; k < 2; k++) {
            assert_int_equal(stage_chunk_at(p->stages[0], k, 32).begin, cases[i].first[k]);
            assert_int_equal(stage_chunk_at(p->stages[3], k, 32).begin, cases[i].last[k]);
        }
        plan__free_unpacked(p, NULL);
    }
}

/* What a checkpoint saves in the background: fp32 weights and moments, as ZeRO shares them. */
static void the_copy_for_saving_is_shared_with_the_optimizer(void **state)
{
    (void)state;
    CheckpointSpec checkpoint = CHECKPOINT_SPEC__INIT;
    struct memory_load load = {.dense_numel = 8000};
    MemoryEstimate m;
    c->spec.checkpoint = &checkpoint;
    checkpoint.interval = (char *)"auto";
    c->training.precision = (char *)"bf16";
    c->layout.data = 8;
    c->layout.zero_stage = 1;
    memory_estimate(&m, &c->config, &c->spec, &load);
    assert_int_equal(m.snapshot_bytes, 12 * 1000);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(sharded_state_is_as_published),
        T(state_bytes_a_parameter_follow_precision),
        T(experts_are_shared_among_their_own_replicas),
        T(zero_three_gathers_two_units),
        T(pipedream_keeps_versions_of_weights),
        T(gpt_activations_have_their_closed_form),
        T(llama_activations_have_their_closed_form),
        T(sequence_parallel_and_selective_recomputation_save_five_times),
        T(full_recomputation_keeps_inputs),
        T(schedules_hold_their_micro_batches),
        T(logits_lie_on_the_last_stage),
        T(whole_plans_hold_the_published_state),
        T(gpt3_on_1024_needs_zero_one),
        T(stages_with_embedding_or_head_get_a_layer_less),
        T(chunks_lie_as_the_schedule_wants),
        T(the_copy_for_saving_is_shared_with_the_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
