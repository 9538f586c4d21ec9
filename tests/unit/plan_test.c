/* The plan: what it holds, and what holds for any size. */
#include <stdlib.h>
#include <string.h>

#include "model/family.h"
#include "plan/params.h"
#include "plan/schedule.h"
#include "plan_fixture.h"

static void a_small_job_gets_a_whole_plan(void **state)
{
    (void)state;
    Plan *p = plan_case_build(c);
    assert_int_equal(p->mesh->num_ranks, 2);
    assert_int_equal(p->n_placement, 2);
    assert_string_equal(p->placement[1]->node, "node0");
    assert_int_equal(p->placement[1]->device, 1);
    assert_int_equal(p->placement[1]->local_rank, 1);
    assert_int_equal(p->placement[1]->local_ranks, 2);
    assert_int_equal(p->micro_batches, 4);
    assert_int_equal(p->total_steps, 3);
    assert_int_equal(p->samples_per_epoch, 220);
    assert_int_equal(p->threads_per_rank, 4);
    assert_true(p->peak_flops == 4 * 2e11);
    assert_string_equal(p->backend, "cpu");
    assert_int_equal(p->n_params, 12);
    assert_int_equal(p->model->num_params, 109888);
    assert_true(p->flops_per_token == 6.0 * 93184 + 6.0 * 2 * 8 * 16 * 6.5);
    plan__free_unpacked(p, NULL);
}

/* Controller and ranks must see the same plan: the same input gives the same bytes. */
static void the_same_input_gives_the_same_bytes(void **state)
{
    (void)state;
    Plan *a = plan_case_build(c), *b = plan_case_build(c);
    size_t len = plan__get_packed_size(a);
    assert_int_equal(plan__get_packed_size(b), len);
    uint8_t *x = malloc(len), *y = malloc(len);
    assert_true(x && y);
    plan__pack(a, x);
    plan__pack(b, y);
    assert_memory_equal(x, y, len);
    free(x);
    free(y);
    plan__free_unpacked(a, NULL);
    plan__free_unpacked(b, NULL);
}

/* ---- table and buckets ---- */

static void check_table(const struct param_table *t)
{
    int64_t end = 0;
    for (int32_t i = 0; i < t->num_params; i++) {
        const struct param *p = &t->params[i];
        assert_int_equal(p->offset % PARAMS_ALIGN_NUMEL, 0);
        assert_true(p->offset >= end && p->offset - end < PARAMS_ALIGN_NUMEL);
        assert_true(i == 0 || p->unit <= t->params[i - 1].unit);
        end = p->offset + p->numel;
    }
    assert_true(t->flat_numel >= end && t->flat_numel - end < PARAMS_ALIGN_NUMEL);
}

static void check_buckets(const Stage *s, const struct param_table *t)
{
    int32_t next = 0;
    int64_t offset = 0;
    for (size_t b = 0; b < s->n_buckets; b++) {
        const Bucket *k = s->buckets[b];
        assert_int_equal(k->first_param, next);
        assert_int_equal(k->offset, offset);
        assert_true(k->num_params >= 1 && k->numel >= 1);
        next += k->num_params;
        offset += k->numel;
        assert_int_equal(k->after_unit, t->params[next - 1].unit);
    }
    assert_int_equal(next, t->num_params);
    assert_int_equal(offset, t->flat_numel);
}

/* Gradients become ready from the head down; the flat buffer follows that order, so that each
 * bucket is one range, and buckets cover every parameter exactly once, for odd sizes too. */
static void buckets_cover_every_parameter_once(void **state)
{
    (void)state;
    static const int64_t shapes[][6] = {{1, 2, 1, 1, 1, 2},
                                        {2, 64, 136, 8, 4, 256},
                                        {7, 42, 99, 3, 1, 331},
                                        {3, 50, 171, 5, 5, 277},
                                        {13, 96, 257, 12, 3, 997}};
    static const double sizes_mb[] = {0.001, 0.05, 0.3, 25};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (size_t j = 0; j < 8; j++) {
            const int64_t *s = shapes[i];
            plan_case_config(c, s[0], s[1], s[2], s[3], s[4], s[5]);
            c->config.tie_word_embeddings = j % 2;
            c->config.has_tie_word_embeddings = 1;
            c->layout.has_bucket_mb = 1;
            c->layout.bucket_mb = sizes_mb[j / 2];
            Plan *p = plan_case_build(c);
            struct param_table t;
            struct error err = {0};
            assert_int_equal(params_expand(p, 0, &t, &err), 0);
            check_table(&t);
            check_buckets(p->stages[0], &t);
            assert_int_equal(p->stages[0]->flat_numel, t.flat_numel);
            int64_t numel = 0;
            for (int32_t k = 0; k < t.num_params; k++) {
                numel += t.params[k].numel;
            }
            assert_int_equal(numel, family_num_params(&c->config));
            params_free(&t);
            plan__free_unpacked(p, NULL);
        }
    }
}

static void the_table_starts_with_the_head_and_ends_with_the_embedding(void **state)
{
    (void)state;
    Plan *p = plan_case_build(c);
    struct param_table t;
    struct error err = {0};
    assert_int_equal(params_expand(p, 0, &t, &err), 0);
    assert_string_equal(t.params[0].name, "model.norm.weight");
    assert_string_equal(t.params[1].name, "lm_head.weight");
    assert_string_equal(t.params[2].name, "model.layers.1.input_layernorm.weight");
    assert_string_equal(t.params[t.num_params - 1].name, "model.embed_tokens.weight");
    assert_int_equal(params_find(&t, "model.layers.0.mlp.down_proj.weight"), t.num_params - 2);
    assert_int_equal(params_find(&t, "model.layers.2.mlp.down_proj.weight"), -1);
    assert_int_equal(t.params[t.num_params - 1].unit, 0);
    assert_int_equal(t.params[0].unit, 3);
    params_free(&t);
    plan__free_unpacked(p, NULL);
}

/* ---- the action list ---- */

/* Walks the list as a rank would and holds the rules: the forward pass of a micro-batch before its
 * backward pass; units of a backward pass in descending order, each once; a bucket reduced once,
 * right after the last micro-batch's backward pass of its unit; nothing after the optimizer. */
static void check_actions(const Stage *s, int32_t m, int32_t units, bool reduce)
{
    int32_t forward_done = 0, backward_done = 0, next_unit = units;
    size_t reduced = 0, losses = 0, waits = 0, norms = 0;
    struct schedule_walk w = {.stage = s};
    for (Action each; schedule_next(&w, &each);) {
        const Action *a = &each;
        switch (a->kind) {
        case ACTION_FORWARD:
            assert_int_equal(a->micro_batch, forward_done);
            assert_int_equal(a->unit_begin, 0);
            assert_int_equal(a->unit_end, units);
            forward_done++;
            break;
        case ACTION_BACKWARD:
            assert_true(a->micro_batch < forward_done);
            assert_int_equal(a->micro_batch, backward_done);
            assert_int_equal(a->unit_end, next_unit);
            assert_true(a->unit_begin < a->unit_end);
            next_unit = a->unit_begin;
            if (next_unit == 0) {
                backward_done++;
                next_unit = units;
            }
            break;
        case ACTION_REDUCE_LOSS:
            assert_int_equal(forward_done, m);
            losses++;
            break;
        case ACTION_REDUCE_BUCKET:
            assert_int_equal(a->bucket, reduced);
            assert_int_equal(s->buckets[reduced]->after_unit, backward_done == m ? 0 : next_unit);
            assert_true(backward_done == m || backward_done == m - 1);
            reduced++;
            break;
        case ACTION_WAIT_REDUCES:
            assert_int_equal(reduced, s->n_buckets);
            waits++;
            break;
        case ACTION_NORM:
            assert_int_equal(backward_done, m);
            assert_int_equal(waits, reduce);
            norms++;
            break;
        case ACTION_OPTIMIZER:
            assert_int_equal(norms, 1);
            assert_int_equal(w.next, s->n_actions);
            break;
        default:
            fail();
        }
    }
    assert_int_equal(reduced, reduce ? s->n_buckets : 0);
    assert_int_equal(losses, reduce);
    assert_int_equal(forward_done, m);
    assert_int_equal(backward_done, m);
}

static void every_action_list_obeys_the_rules(void **state)
{
    (void)state;
    static const int64_t datas[] = {1, 2, 3, 4};
    static const double sizes_mb[] = {0.001, 0.02, 0.1, 25};
    plan_case_config(c, 5, 42, 99, 3, 1, 331);
    c->training.global_batch_size = 24;
    c->layout.has_bucket_mb = 1;
    for (size_t i = 0; i < 4; i++) {
        for (int64_t micro = 1; micro <= 2; micro++) {
            for (size_t j = 0; j < 4; j++) {
                c->layout.data = datas[i];
                c->training.micro_batch_size = micro;
                c->training.has_micro_batch_size = 1;
                c->layout.bucket_mb = sizes_mb[j];
                Plan *p = plan_case_build(c);
                assert_int_equal(p->micro_batches, 24 / (datas[i] * micro));
                check_actions(p->stages[0], (int32_t)p->micro_batches, 7, datas[i] > 1);
                plan__free_unpacked(p, NULL);
            }
        }
    }
}

/* Overlap: with small buckets the first reduce starts before the backward pass is over. */
static void reduces_start_while_the_backward_pass_runs(void **state)
{
    (void)state;
    c->layout.has_bucket_mb = 1;
    c->layout.bucket_mb = 0.01;
    Plan *p = plan_case_build(c);
    const Stage *s = p->stages[0];
    size_t first_reduce = 0, last_backward = 0;
    for (size_t i = 0; i < s->n_actions; i++) {
        if (s->actions[i]->kind == ACTION_REDUCE_BUCKET && first_reduce == 0) {
            first_reduce = i;
        }
        if (s->actions[i]->kind == ACTION_BACKWARD) {
            last_backward = i;
        }
    }
    assert_true(first_reduce > 0 && first_reduce < last_backward);
    plan__free_unpacked(p, NULL);
}

/* ---- tensor ranks ---- */

/* The rule is the family's heads and MLP: GPT-2 has as many key/value heads as heads. What doesn't
 * go is refused with the nearest that do. */
static void tensor_ranks_divide_what_the_family_has(void **state)
{
    (void)state;
    plan_case_cluster(c, 1, 16, 16, 0);
    plan_case_config(c, 2, 48, 192, 12, 12, 331);
    c->config.model_type = (char *)"gpt2";
    c->config.tie_word_embeddings = 1;
    c->layout.data = 1;
    static const int64_t good[] = {1, 2, 3, 4, 6, 12};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        c->layout.tensor = good[i];
        c->layout.sequence_parallel = i % 2 != 0;
        Plan *p = plan_case_build(c);
        struct error err = {0};
        assert_int_equal(plan_check_built(p, &err), 0);
        plan__free_unpacked(p, NULL);
    }
    c->layout.tensor = 5;
    plan_case_refused(c, "parallel.tensor: 5: has to divide the model's n_head 12 and "
                         "n_inner 192; use 4 or 6");
    c->config.model_type = (char *)"qwen2";
    c->config.tie_word_embeddings = 0;
    plan_case_config(c, 2, 48, 192, 12, 4, 331);
    c->layout.tensor = 6; /* 4 KV heads on 6 ranks */
    plan_case_refused(c, "parallel.tensor: 6: has to divide the model's num_attention_heads 12 and "
                         "intermediate_size 192, and divide or be a multiple of "
                         "num_key_value_heads 4; use 4 or 12");
}

/* ---- size ---- */

/* The plan is symbolic: 405B on 16,384 ranks stays below 1 MiB. */
static void a_huge_plan_stays_below_one_mib(void **state)
{
    (void)state;
    static const struct spec_unbuilt unbuilt = {0};
    c->input.unbuilt = &unbuilt;
    plan_case_config(c, 126, 16384, 53248, 128, 8, 128256);
    c->config.has_max_position_embeddings = 1;
    c->config.max_position_embeddings = 131072;
    plan_case_cluster(c, 2048, 8, 128, 0);
    c->layout.data = 16384;
    c->training.seq_len = 8192;
    c->training.global_batch_size = 16384 * 2;
    c->data_facts.num_tokens = 15600000000000;
    Plan *p = plan_case_build(c);
    assert_int_equal(p->model->num_params, 405853388800);
    assert_int_equal(p->n_placement, 16384);
    assert_true(plan__get_packed_size(p) < 1 << 20);
    assert_string_equal(p->placement[16383]->node, "node2047");
    assert_int_equal(p->placement[16383]->local_rank, 7);
    plan__free_unpacked(p, NULL);
}

/* ---- length ---- */

static void windows_decide_how_many_samples_there_are(void **state)
{
    (void)state;
    DataFacts d = DATA_FACTS__INIT;
    SourceSpec s = SOURCE_SPEC__INIT;
    static const int64_t cases[][4] = {/* tokens, seq_len, T, T+1 */
                                       {0, 4, 0, 0},
                                       {4, 4, 0, 0},
                                       {5, 4, 1, 1},
                                       {9, 4, 2, 1},
                                       {10, 4, 2, 2},
                                       {13, 4, 3, 2},
                                       {INT64_MAX, 1, INT64_MAX - 1, INT64_MAX / 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        d.num_tokens = cases[i][0];
        s.window = (char *)"T";
        assert_int_equal(plan_samples_per_epoch(&d, &s, cases[i][1]), cases[i][2]);
        s.window = (char *)"T+1";
        assert_int_equal(plan_samples_per_epoch(&d, &s, cases[i][1]), cases[i][3]);
    }
}

/* Tokens and epochs are rounded up to whole steps, but not by the error of a product. */
static void length_follows_from_steps_tokens_or_epochs(void **state)
{
    (void)state;
    struct error err = {0};
    int64_t steps;
    assert_int_equal(plan_total_steps(&c->spec, 220, &steps, &err), 0);
    assert_int_equal(steps, 3);
    c->training.has_steps = 0;
    c->training.has_tokens = 1;
    c->training.tokens = 8 * 12 * 5 + 1;
    assert_int_equal(plan_total_steps(&c->spec, 220, &steps, &err), 0);
    assert_int_equal(steps, 6);
    c->training.has_tokens = 0;
    c->training.has_epochs = 1;
    c->training.epochs = 0.7;
    assert_int_equal(plan_total_steps(&c->spec, 80, &steps, &err), 0);
    assert_int_equal(steps, 7);
    c->training.epochs = 2;
    assert_int_equal(plan_total_steps(&c->spec, 221, &steps, &err), 0);
    assert_int_equal(steps, 56);
    c->training.epochs = 1e300;
    assert_int_equal(plan_total_steps(&c->spec, 221, &steps, &err), -1);
    c->training.epochs = 0.0 / 0.0;
    assert_int_equal(plan_total_steps(&c->spec, 221, &steps, &err), -1);
    assert_non_null(strstr(err.text, "training.epochs"));
}

/* ---- devices ---- */

static void taken_and_drained_devices_are_passed_over(void **state)
{
    (void)state;
    plan_case_cluster(c, 2, 2, 4, 0);
    c->devices[0].job_id = 7;
    c->devices[2].drained = 1;
    Plan *p = plan_case_build(c);
    assert_string_equal(p->placement[0]->node, "node0");
    assert_int_equal(p->placement[0]->device, 1);
    assert_string_equal(p->placement[1]->node, "node1");
    assert_int_equal(p->placement[1]->device, 1);
    assert_int_equal(p->placement[1]->local_rank, 0);
    assert_int_equal(p->placement[1]->local_ranks, 1);
    assert_int_equal(p->threads_per_rank, 4);
    plan__free_unpacked(p, NULL);
}

static void a_given_placement_is_taken_as_it_is(void **state)
{
    (void)state;
    plan_case_cluster(c, 2, 2, 4, 0);
    RankPlacement a = RANK_PLACEMENT__INIT, b = RANK_PLACEMENT__INIT;
    a.node = (char *)"node1";
    a.device = 1;
    b.node = (char *)"node0";
    b.device = 0;
    const RankPlacement *list[] = {&a, &b};
    c->input.placement = list;
    Plan *p = plan_case_build(c);
    assert_string_equal(p->placement[0]->node, "node1");
    assert_int_equal(p->placement[0]->device, 1);
    assert_string_equal(p->placement[1]->node, "node0");
    plan__free_unpacked(p, NULL);
    b.device = 9;
    plan_case_refused(c, "device 9 of node node0 is not in the cluster");
}

/* Named nodes may be said to have more cores than the host that runs them all. */
static void threads_are_no_more_than_the_host_has_cores(void **state)
{
    (void)state;
    plan_case_cluster(c, 2, 1, 4, 0);
    c->input.host_cores = 6;
    Plan *p = plan_case_build(c);
    assert_int_equal(p->mesh->num_ranks, 2);
    assert_int_equal(p->threads_per_rank, 3);
    plan__free_unpacked(p, NULL);
    c->input.host_cores = 1;
    p = plan_case_build(c);
    assert_int_equal(p->threads_per_rank, 1);
    plan__free_unpacked(p, NULL);
}

static void threads_are_never_less_than_one(void **state)
{
    (void)state;
    plan_case_cluster(c, 1, 4, 2, 0);
    c->layout.data = 4;
    Plan *p = plan_case_build(c);
    assert_int_equal(p->threads_per_rank, 1);
    plan__free_unpacked(p, NULL);
}

static void the_summary_says_it_in_words(void **state)
{
    (void)state;
    Plan *p = plan_case_build(c);
    PlanSummary *s = plan_summary(p);
    assert_string_equal(s->model, "llama-tiny (llama)");
    assert_string_equal(s->layout, "data 2");
    assert_int_equal(s->devices, 2);
    assert_int_equal(s->num_params, 109888);
    assert_int_equal(s->mem_bytes_per_rank, p->memory->total_bytes);
    assert_true(s->n_notes == p->n_notes && s->n_notes > 0);
    plan_summary__free_unpacked(s, NULL);
    plan__free_unpacked(p, NULL);
    c->model_spec.path = NULL;
    c->model_spec.config = (char *)"/models/nano/config.json";
    c->layout.data = 1;
    p = plan_case_build(c);
    s = plan_summary(p);
    assert_string_equal(s->model, "nano (llama, random weights)");
    assert_string_equal(s->layout, "data 1");
    plan_summary__free_unpacked(s, NULL);
    plan__free_unpacked(p, NULL);
}

/* Ranks get their plan from the wire; a damaged one is an error, never a crash. */
static void a_damaged_plan_does_not_expand(void **state)
{
    (void)state;
    Plan *p = plan_case_build(c);
    struct param_table t;
    struct error err = {0};
    assert_int_equal(params_expand(p, 1, &t, &err), -1);
    assert_int_equal(plan_check_built(p, &err), 0);
    p->mesh->expert = 2;
    assert_int_equal(plan_check_built(p, &err), -1);
    p->mesh->expert = 1;
    Mesh *mesh = p->mesh;
    p->mesh = NULL;
    assert_int_equal(plan_check_built(p, &err), -1);
    p->mesh = mesh;
    p->stages[0]->layer_end = INT64_MAX;
    assert_int_equal(params_expand(p, 0, &t, &err), -1);
    p->stages[0]->layer_end = 2;
    p->params[1]->shape[0] = -5;
    assert_int_equal(params_expand(p, 0, &t, &err), -1);
    p->params[1]->shape[0] = INT64_MAX;
    assert_int_equal(params_expand(p, 0, &t, &err), -1);
    plan__free_unpacked(p, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_small_job_gets_a_whole_plan),
        T(the_same_input_gives_the_same_bytes),
        T(buckets_cover_every_parameter_once),
        T(the_table_starts_with_the_head_and_ends_with_the_embedding),
        T(every_action_list_obeys_the_rules),
        T(reduces_start_while_the_backward_pass_runs),
        T(tensor_ranks_divide_what_the_family_has),
        T(a_huge_plan_stays_below_one_mib),
        T(windows_decide_how_many_samples_there_are),
        T(length_follows_from_steps_tokens_or_epochs),
        T(taken_and_drained_devices_are_passed_over),
        T(a_given_placement_is_taken_as_it_is),
        T(threads_are_no_more_than_the_host_has_cores),
        T(threads_are_never_less_than_one),
        T(the_summary_says_it_in_words),
        T(a_damaged_plan_does_not_expand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
