/* What a plan refuses, and what it does but notes: in the user's words. */
#include <string.h>

#include "plan/layout_rules.h"
#include "plan_fixture.h"

static void too_many_devices_names_the_nearest_that_fits(void **state)
{
    (void)state;
    c->layout.data = 8;
    plan_case_refused(c, "resources.devices: 8 wanted, the cluster has 4; parallel.data: 4 fits");
    plan_case_cluster(c, 1, 3, 8, 0);
    plan_case_refused(c, "parallel.data: 2 fits");
    c->devices[0].job_id = 1;
    c->devices[1].job_id = 1;
    c->layout.data = 2;
    plan_case_refused(c, "has 3 but only 1 of them is free");
    c->resources.type = (char *)"h100";
    plan_case_refused(c, "resources.type: \"h100\": the cluster has cpu");
}

/* Ranks of CPU devices share a segment of one host, which holds so many: said at submit, and not by
 * a gang that can't begin. */
static void a_cpu_gang_larger_than_one_host_runs_is_refused(void **state)
{
    (void)state;
    static const struct spec_unbuilt unbuilt = {0};
    plan_case_cluster(c, 64, 8, 8, 0);
    c->layout.data = PLAN_HOST_MAX_RANKS;
    c->training.global_batch_size = 2 * PLAN_HOST_MAX_RANKS;
    plan__free_unpacked(plan_case_build(c), NULL);
    c->layout.data = 2 * PLAN_HOST_MAX_RANKS;
    plan_case_refused(c, "resources.devices: 512 CPU devices: a gang of more than 256 of them is "
                         "not built yet");
    c->input.unbuilt = &unbuilt;
    Plan *p = plan_case_build(c);
    assert_int_equal(p->n_unbuilt, 1);
    plan__free_unpacked(p, NULL);
}

/* A name that the cluster hasn't is said, with the nearest: not that it has 0 devices. */
static void a_node_that_is_not_there_is_named(void **state)
{
    (void)state;
    static const struct spec_unbuilt unbuilt = {0};
    char *nodes[] = {(char *)"node0", (char *)"nods0"};
    c->input.unbuilt = &unbuilt;
    c->resources.nodes = nodes;
    c->resources.n_nodes = 2;
    plan_case_refused(c, "resources.nodes: no node is called nods0; did you mean node0?");
    c->resources.n_nodes = 1;
    plan__free_unpacked(plan_case_build(c), NULL);
}

/* 3 divides the experts as well, and not the ranks that they are dealt out over. */
static void the_nearest_expert_axis_suits_the_ranks_too(void **state)
{
    (void)state;
    struct error err = {0};
    c->config.num_experts = 6;
    c->config.moe_intermediate_size = 136;
    c->layout.data = c->layout.expert = 4;
    assert_int_equal(layout_rules_check_model(&c->spec, &c->config, &err), -1);
    assert_string_equal(err.text, "parallel.expert: 4: has to divide the model's 6 experts; use 2");
    c->layout.data = 12;
    assert_int_equal(layout_rules_check_model(&c->spec, &c->config, &err), -1);
    assert_non_null(strstr(err.text, "; use 3 or 6"));
}

static void what_does_not_go_together_is_refused(void **state)
{
    (void)state;
    c->training.seq_len = 4096;
    plan_case_refused(c,
                      "training.seq_len: 4096 is above the model's max_position_embeddings 2048");
    c->training.seq_len = 12;
    c->data_facts.num_tokens = 12;
    plan_case_refused(c, "/data/train.bin holds 12 tokens");
    c->data_facts.num_tokens = 4000;
    c->data_facts.has_max_token = 1;
    c->data_facts.max_token = 256;
    plan_case_refused(c, "holds token 256, the model's vocab_size is 256");
    c->data_facts.max_token = -1;
    c->config.vocab_size = 200;
    c->source.format = (char *)"text";
    plan_case_refused(c, "the model's vocab_size is 200");
    c->config.vocab_size = 256;
    c->training.global_batch_size = 7;
    plan_case_refused(c, "training.global_batch_size: 7 is not divisible");
    c->training.global_batch_size = 1 << 20;
    plan_case_refused(c, "micro-batches a step on each rank, at most");
    c->training.global_batch_size = 8;
    c->training.precision = (char *)"fp64";
    c->resources.backend = (char *)"cpu";
    plan_case_refused(c, "fp64 needs ref");
    c->resources.backend = (char *)"auto";
    Plan *p = plan_case_build(c);
    assert_string_equal(p->backend, "ref");
    assert_true(p->peak_flops == p->threads_per_rank * 1e11);
    plan__free_unpacked(p, NULL);
}

/* A batch larger than the file is allowed (passes wrap), but said. */
static void a_batch_beyond_one_pass_is_noted(void **state)
{
    (void)state;
    c->data_facts.num_tokens = 13;
    Plan *p = plan_case_build(c);
    bool said = false;
    for (size_t i = 0; i < p->n_notes; i++) {
        said = said || strstr(p->notes[i], "more than one pass");
    }
    assert_true(said);
    plan__free_unpacked(p, NULL);
}

static bool has_note(const Plan *p, const char *words)
{
    for (size_t i = 0; i < p->n_notes; i++) {
        if (strstr(p->notes[i], words)) {
            return true;
        }
    }
    return false;
}

/* The default of 2000 warm-up steps makes nothing of a short run: allowed, but said. */
static void a_warm_up_beyond_the_run_is_noted(void **state)
{
    (void)state;
    LrScheduleSpec schedule = LR_SCHEDULE_SPEC__INIT;
    schedule.has_warmup_steps = 1;
    schedule.warmup_steps = 2000;
    c->training.lr_schedule = &schedule;
    Plan *p = plan_case_build(c);
    assert_true(p->total_steps < 2000);
    assert_true(has_note(p, "the rate never reaches lr"));
    schedule.warmup_steps = p->total_steps;
    plan__free_unpacked(p, NULL);
    p = plan_case_build(c);
    assert_false(has_note(p, "the rate never reaches lr"));
    assert_true(has_note(p, "the rate reaches lr in the last step alone"));
    schedule.warmup_steps = p->total_steps - 1;
    plan__free_unpacked(p, NULL);
    p = plan_case_build(c);
    assert_false(has_note(p, "the rate"));
    plan__free_unpacked(p, NULL);
}

/* A file of rows taken for text trains on brackets and digits: where it is one for sure it is
 * refused, where it may be meant it is said. */
static void json_that_is_taken_for_text_is_told(void **state)
{
    (void)state;
    Plan *p = plan_case_build(c);
    assert_false(has_note(p, "looks like JSON"));
    plan__free_unpacked(p, NULL);
    c->data_facts.looks_like = (char *)"jsonl";
    p = plan_case_build(c);
    assert_true(has_note(p, "looks like JSON lines: format text trains on the JSON itself"));
    plan__free_unpacked(p, NULL);
    c->data_facts.looks_like = (char *)"tokenized-jsonl";
    plan_case_refused(c, "holds JSON lines with input_ids, and format text would train on the "
                         "letters of the JSON; use format: tokenized-jsonl");
}

/* A folder of GPT-2 asks for 0.1 in three keys; who meant that is told that this job doesn't. */
static void a_dropout_that_the_model_asks_for_is_noted(void **state)
{
    (void)state;
    Plan *p = plan_case_build(c);
    assert_false(has_note(p, "dropout"));
    plan__free_unpacked(p, NULL);
    c->config.config_json = (char *)"{\"attn_pdrop\": 0.05, \"resid_pdrop\": 0.1}";
    p = plan_case_build(c);
    assert_true(has_note(p, "the model's config asks for dropout 0.1; this job trains with "
                            "training.dropout 0"));
    plan__free_unpacked(p, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(too_many_devices_names_the_nearest_that_fits),
        T(a_cpu_gang_larger_than_one_host_runs_is_refused),
        T(a_node_that_is_not_there_is_named),
        T(the_nearest_expert_axis_suits_the_ranks_too),
        T(what_does_not_go_together_is_refused),
        T(a_batch_beyond_one_pass_is_noted),
        T(a_warm_up_beyond_the_run_is_noted),
        T(json_that_is_taken_for_text_is_told),
        T(a_dropout_that_the_model_asks_for_is_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
