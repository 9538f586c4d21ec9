/* tandem plan --kernels, in numbers: what it adds up to, and what its assumptions come to. */
#include <math.h>
#include <string.h>

#include "plan/kernels.h"
#include "plan/step_time.h"
#include "plan_fixture.h"

static void on(const char *type, int num, int64_t seq_len, int64_t micro, int64_t micro_batches)
{
    plan_case_cluster(c, 1, 8, 64, 0);
    for (int i = 0; i < 8; i++) {
        c->devices[i].type = (char *)(uintptr_t)type;
        c->devices[i].has_peak_flops_fp32 = 0;
        c->devices[i].peak_flops_fp32 = 0;
    }
    c->layout.data = num;
    c->training.seq_len = seq_len;
    c->training.micro_batch_size = micro;
    c->training.global_batch_size = num * micro * micro_batches;
    c->data_facts.num_tokens = (int64_t)1 << 40;
    c->config.max_position_embeddings = seq_len;
    c->config.tie_word_embeddings = 0;
}

static void gpt2_124m(const char *type, int num, int64_t vocabulary)
{
    on(type, num, 1024, 16, 2);
    c->config.model_type = (char *)"gpt2";
    c->config.tie_word_embeddings = 1;
    plan_case_config(c, 12, 768, 3072, 12, 12, vocabulary);
}

static void llama_3_8b(const char *type, int num, int64_t zero_stage)
{
    on(type, num, 8192, 1, 4);
    c->config.model_type = (char *)"llama";
    plan_case_config(c, 32, 4096, 14336, 32, 8, 128256);
    c->layout.zero_stage = zero_stage;
}

static struct kernel_table *table_of(const Plan *p, enum kernel_attention attention)
{
    struct kernel_table *t;
    struct error err = {0};
    if (kernel_table_new(&t, p, &c->cluster, attention, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return t;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* Rows make up the totals, the totals the step; FLOPs are those that the plan counts for the step's
 * tokens. */
static void check_sums(const Plan *p, const struct kernel_table *t)
{
    double flops = 0, compute_s = 0, beside_s = 0, step_s = 0;
    const TrainingSpec *s = p->spec->training;
    double tokens = (double)s->global_batch_size * (double)s->seq_len;
    for (size_t i = 0; i < t->num_rows; i++) {
        const struct kernel_row *row = &t->rows[i];
        flops += row->flops;
        *(row->launch.stream == LAUNCH_COMPUTE ? &compute_s : &beside_s) += row->seconds;
        assert_true(row->times > 0 && row->seconds > 0);
    }
    for (int i = 0; i < NUM_LAUNCH_KINDS; i++) {
        const struct kernel_total *x = &t->totals[i];
        double bounds = 0;
        for (int b = 0; b < NUM_KERNEL_BOUNDS; b++) {
            bounds += x->by_bound[b];
        }
        assert_true(fabs(bounds - x->seconds - x->beside) <= 1e-9 * t->step_s);
        step_s += x->seconds;
        compute_s -= i == LAUNCH_KIND_IDLE ? 0 : x->seconds;
        beside_s -= x->beside;
    }
    assert_true(near(flops, t->flops));
    double ratio = t->flops * (double)p->mesh->num_ranks / (p->flops_per_token * tokens);
    if (!near(ratio, 1)) {
        fail_msg("gemm and attention have %.9g of the FLOPs that the plan counts", ratio);
    }
    assert_true(near(step_s, t->step_s));
    assert_true(fabs(compute_s) + fabs(beside_s) <= 1e-9 * t->step_s);
    assert_true(near(t->mfu, t->flops / t->step_s / p->peak_flops));
    assert_true(near(t->tokens_per_s, tokens / t->step_s));
}

static double mfu(enum kernel_attention attention)
{
    Plan *p = plan_case_build(c);
    struct kernel_table *t = table_of(p, attention);
    check_sums(p, t);
    double mfu = t->mfu;
    kernel_table_free(t);
    plan__free_unpacked(p, NULL);
    return mfu;
}

static void rows_make_up_the_step_and_its_flops(void **state)
{
    (void)state;
    gpt2_124m("h100", 1, 50257);
    mfu(KERNEL_ATTENTION_OWN);
    gpt2_124m("h200", 8, 50304);
    mfu(KERNEL_ATTENTION_AUTO);
    for (int64_t stage = 0; stage <= 3; stage++) {
        gpt2_124m("h100", 4, 50304);
        c->layout.zero_stage = stage;
        mfu(KERNEL_ATTENTION_OWN);
    }
    llama_3_8b("h200", 8, 3);
    mfu(KERNEL_ATTENTION_CUDNN);
    llama_3_8b("h200", 2, 3);
    c->layout.tensor = 4;
    c->layout.sequence_parallel = 1;
    mfu(KERNEL_ATTENTION_OWN);
}

/* 769 to 798 TFLOP/s were seen on an H200. */
static void large_product_takes_what_was_seen(void **state)
{
    (void)state;
    gpt2_124m("h200", 1, 50304);
    Plan *p = plan_case_build(c);
    struct kernel_table *t = table_of(p, KERNEL_ATTENTION_OWN);
    const struct launch l = {.op = LAUNCH_GEMM,
                             .size = {8192, 8192, 8192},
                             .even = true,
                             .flops = 2.0 * 8192 * 8192 * 8192,
                             .bytes = 3.0 * 2 * 8192 * 8192};
    enum kernel_bound bound;
    double rate = l.flops / kernel_time(&t->rates, p, &l, &bound);
    assert_true(rate >= 769e12 && rate <= 798e12);
    assert_int_equal(bound, KERNEL_BOUND_COMPUTE);
    assert_true(t->rates.bytes_per_s > 4.29e12 && t->rates.bytes_per_s < 4.31e12);
    kernel_table_free(t);
    plan__free_unpacked(p, NULL);
}

/* A wave that is one tile too large takes another wave; a short k loses its ends. */
static void tiles_waves_and_short_sums_cost(void **state)
{
    (void)state;
    const struct kernel_rates r = {.gpu = true, .multiprocessors = 132};
    double whole = kernel_gemm_share(&r, 128 * 132, 256, 8192);
    assert_true(whole > 0.95 && whole <= 1);
    assert_true(kernel_gemm_share(&r, 128 * 133, 256, 8192) < whole);
    assert_true(kernel_gemm_share(&r, 128 * 132, 256, 768) < 0.85 * whole);
    assert_true(kernel_gemm_share(&r, 128, 256, 8192) < 0.5);
    assert_true(kernel_gemm_share(&r, 128, 256, 8192) > 1.0 / 132);
}

/* What the documentation says of the order of things. Rows of logits begin evenly, whatever the
 * vocabulary. */
static void better_kernels_are_faster_and_odd_vocabularies_not_slower(void **state)
{
    (void)state;
    gpt2_124m("h100", 1, 50257);
    double odd = mfu(KERNEL_ATTENTION_OWN);
    gpt2_124m("h100", 1, 50304);
    double even = mfu(KERNEL_ATTENTION_OWN);
    assert_true(fabs(even / odd - 1) < 0.01);
    llama_3_8b("h200", 8, 3);
    double own = mfu(KERNEL_ATTENTION_OWN), forward = mfu(KERNEL_ATTENTION_AUTO);
    double both = mfu(KERNEL_ATTENTION_CUDNN);
    assert_true(own > 0.3 && own < forward && forward < both && both < 0.8);
}

/* A slow network shows as idle time, and the step is longer by it. */
static void what_overlap_does_not_hide_is_idle(void **state)
{
    (void)state;
    double idle[2], step[2], device[2];
    for (int i = 0; i < 2; i++) {
        llama_3_8b("h200", 8, 3);
        Plan *p = plan_case_build(c);
        for (size_t g = 0; i == 1 && g < p->n_groups; g++) {
            p->groups[g]->bytes_per_s /= 100;
        }
        struct kernel_table *t = table_of(p, KERNEL_ATTENTION_OWN);
        check_sums(p, t);
        idle[i] = t->totals[LAUNCH_KIND_IDLE].seconds;
        step[i] = t->step_s;
        device[i] = t->step_s - idle[i];
        kernel_table_free(t);
        plan__free_unpacked(p, NULL);
    }
    assert_true(idle[0] < 0.02 * step[0]);
    assert_true(idle[1] > 0.5 * step[1]);
    assert_true(near(device[0], device[1]));
}

/* Linked with --wrap: the launches that are played through. */
static int64_t num_played;
double __real_kernel_time(const struct kernel_rates *r, const Plan *plan, const struct launch *l,
                          enum kernel_bound *bound);
double __wrap_kernel_time(const struct kernel_rates *r, const Plan *plan, const struct launch *l,
                          enum kernel_bound *bound);

double __wrap_kernel_time(const struct kernel_rates *r, const Plan *plan, const struct launch *l,
                          enum kernel_bound *bound)
{
    num_played++;
    return __real_kernel_time(r, plan, l, bound);
}

/* Of a step of so many micro-batches: told from few, as if all had been played through. slow: so
 * many times the links' time. */
static void check_step_time(int64_t micro_batches, double slow)
{
    c->training.global_batch_size = c->layout.data * c->training.micro_batch_size * micro_batches;
    Plan *p = plan_case_build(c);
    for (size_t g = 0; g < p->n_groups; g++) {
        p->groups[g]->bytes_per_s /= slow;
    }
    struct kernel_table *t = table_of(p, KERNEL_ATTENTION_OWN);
    struct step_time time = step_time_find(p, &c->cluster);
    assert_true(time.by_launches);
    assert_true(near(time.step_s, t->step_s));
    assert_true(near(time.mfu, t->mfu));
    kernel_table_free(t);
    plan__free_unpacked(p, NULL);
}

static void a_step_of_many_micro_batches_is_told_from_few(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        int64_t tensor = i / 4 % 2 + 1;
        gpt2_124m("h100", 4 / (int)tensor, 50304);
        c->config.num_hidden_layers = 3;
        c->layout.tensor = tensor;
        c->layout.sequence_parallel = tensor > 1;
        c->layout.zero_stage = i % 4;
        c->training.seq_len = i < 8 ? 1024 : 64; /* the host is slower, then */
        for (int64_t m = 1; m < 12; m++) {
            check_step_time(m, m % 2 ? 1 : 300);
        }
        check_step_time(40, 1);
        check_step_time(41, 100);
    }
}

static void a_step_time_takes_no_longer_for_more_micro_batches(void **state)
{
    (void)state;
    const int64_t micro_batches[] = {8, 16384};
    int64_t played[2];
    for (int i = 0; i < 2; i++) {
        llama_3_8b("h200", 8, 3);
        c->training.global_batch_size = 8 * micro_batches[i];
        Plan *p = plan_case_build(c);
        num_played = 0;
        assert_true(step_time_find(p, &c->cluster).by_launches);
        played[i] = num_played;
        plan__free_unpacked(p, NULL);
    }
    assert_int_equal(played[0], played[1]);
}

/* CPU devices, what can't be run yet and models of too many layers have the formula's. */
static void other_steps_are_told_by_formula(void **state)
{
    (void)state;
    struct spec_unbuilt unbuilt = {0};
    c->input.unbuilt = &unbuilt;
    for (int i = 0; i < 4; i++) {
        if (i > 0) {
            gpt2_124m("h100", 2, 50304);
            c->layout.pipeline = i == 2 ? 2 : 1;
            c->config.num_hidden_layers = i == 3 ? STEP_TIME_MAX_LAYERS + 1 : 12;
        }
        Plan *p = plan_case_build(c);
        struct step_time time = step_time_find(p, &c->cluster);
        assert_true(time.by_launches == (i == 1));
        assert_true((time.step_s == plan_step_seconds(p)) == (i != 1));
        assert_true(time.step_s > 0 && time.mfu > 0);
        plan__free_unpacked(p, NULL);
    }
}

static void refused(const char *part)
{
    struct kernel_table *t = NULL;
    struct error err = {0};
    struct spec_unbuilt unbuilt = {0};
    c->input.unbuilt = &unbuilt;
    Plan *p = plan_case_build(c);
    assert_int_equal(kernel_table_new(&t, p, &c->cluster, KERNEL_ATTENTION_OWN, &err), -1);
    if (!strstr(err.text, part)) {
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    }
    plan__free_unpacked(p, NULL);
}

static void what_is_not_known_is_said(void **state)
{
    (void)state;
    /* CPU devices: a measured peak, or none. */
    c->config.num_hidden_layers = 2;
    c->training.precision = (char *)"fp32";
    double of_cpu = mfu(KERNEL_ATTENTION_OWN);
    assert_true(of_cpu > 0 && of_cpu < 0.92);
    for (int i = 0; i < 4; i++) {
        c->devices[i].peak_flops_fp32 = 0;
    }
    refused("devices of type cpu: their peak isn't known");
    gpt2_124m("h100", 2, 50304);
    c->training.precision = (char *)"bf16";
    c->layout.pipeline = 2;
    refused("launches are known of layouts that can be run");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(rows_make_up_the_step_and_its_flops),
        T(large_product_takes_what_was_seen),
        T(tiles_waves_and_short_sums_cost),
        T(better_kernels_are_faster_and_odd_vocabularies_not_slower),
        T(what_overlap_does_not_hide_is_idle),
        T(a_step_of_many_micro_batches_is_told_from_few),
        T(a_step_time_takes_no_longer_for_more_micro_batches),
        T(other_steps_are_told_by_formula),
        T(what_is_not_known_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
