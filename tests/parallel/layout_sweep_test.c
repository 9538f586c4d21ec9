/* Shapes and layouts that nobody tuned for: models, batches and layouts drawn from a seed, each
 * run on several ranks against one rank. TANDEM_SEED=N begins elsewhere (a failure prints its own),
 * TANDEM_CASES=N takes so many, TANDEM_FULL=1 thousands, TANDEM_SAMPLE=1 (sanitizers) a few. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/rng.h"
#include "gang.h"
#include "plan/params.h"

#define NUM_STEPS 3
#define CASES_DEFAULT 40
#define CASES_SAMPLE 6
#define CASES_FULL 3000

/* fp64: only the order of sums differs. fp32: the project's bounds against fp64. */
#define SAME 1e-12
#define NEAR_LOSS 2e-6
#define NEAR_NORM 5e-6

struct draw {
    uint64_t seed, next;
};

static int64_t pick(struct draw *d, const int64_t *list, size_t num)
{
    return list[rng_u64(d->seed, rng_stream("layout sweep"), d->next++) % num];
}
#define PICK(d, ...)                                                                               \
    pick((d), (const int64_t[]){__VA_ARGS__},                                                      \
         sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

/* ---- one case ---------------------------------------------------------------------------------
 */

struct sweep_case {
    uint64_t seed;
    int64_t heads, kv_heads, head_dim, hidden, ffn, layers, vocab, seq_len, batch;
    bool tied, llama3, shuffled, shared_token, adam;
    int64_t data, micro, one_micro;
    const char *bucket_mb, *clip;
    char config[256], tokens[256];
    struct golden sizes;
};

static int64_t divisor_of(struct draw *d, int64_t n)
{
    int64_t list[64];
    size_t num = 0;
    for (int64_t i = 1; i <= n; i++)
        if (n % i == 0 && num < 64)
            list[num++] = i;
    return pick(d, list, num);
}

static void draw_case(uint64_t seed, struct sweep_case *c)
{
    static const char *const buckets[] = {"0.001", "0.05", "25"};
    static const char *const clips[] = {"0", "0.05", "1.0"};
    struct draw d = {.seed = seed};
    *c = (struct sweep_case){.seed = seed};
    const int64_t groups[][2] = {{6, 3}, {5, 1}, {1, 1}, {4, 2}, {3, 3}, {7, 7}, {6, 2}, {8, 1}};
    size_t group = (size_t)PICK(&d, 0, 1, 2, 3, 4, 5, 6, 7);
    c->heads = groups[group][0];
    c->kv_heads = groups[group][1];
    c->head_dim = PICK(&d, 2, 6, 8, 12, 20);
    c->hidden = PICK(&d, 24, 33, 40, 56, 72, 7);
    c->ffn = PICK(&d, 17, 24, 40, 100, 1);
    c->layers = PICK(&d, 1, 2, 3);
    c->vocab = PICK(&d, 331, 97, 257, 2, 1000);
    c->seq_len = PICK(&d, 33, 16, 7, 1, 50);
    c->batch = PICK(&d, 12, 15, 6, 30, 5);
    c->tied = PICK(&d, 0, 1) != 0;
    c->llama3 = PICK(&d, 0, 1) != 0;
    c->shuffled = PICK(&d, 0, 1) != 0;
    c->shared_token = PICK(&d, 0, 1) != 0;
    c->adam = PICK(&d, 0, 0, 1) != 0;
    do
        c->data = PICK(&d, 1, 2, 3, 5, 6);
    while (c->batch % c->data != 0);
    c->micro = divisor_of(&d, c->batch / c->data);
    c->one_micro = divisor_of(&d, c->batch);
    c->bucket_mb = buckets[PICK(&d, 0, 1, 2)];
    c->clip = clips[PICK(&d, 0, 1, 2)];
    c->sizes = (struct golden){"llama-tiny", c->batch, c->seq_len};
}

static void print_case(const struct sweep_case *c)
{
    print_error("TANDEM_SEED=%llu: heads %lld/%lld x %lld, hidden %lld, ffn %lld, layers %lld, "
                "vocab %lld%s%s, seq %lld, batch %lld, data %lld, micro %lld (against %lld), "
                "%s, window %s, bucket_mb %s, clip %s, %s\n",
                (unsigned long long)c->seed, (long long)c->heads, (long long)c->kv_heads,
                (long long)c->head_dim, (long long)c->hidden, (long long)c->ffn,
                (long long)c->layers, (long long)c->vocab, c->tied ? ", tied" : "",
                c->llama3 ? ", llama3 rope" : "", (long long)c->seq_len, (long long)c->batch,
                (long long)c->data, (long long)c->micro, (long long)c->one_micro,
                c->shuffled ? "shuffled" : "sequential", c->shared_token ? "T" : "T+1",
                c->bucket_mb, c->clip, c->adam ? "adamw" : "sgd");
}

static void write_config(const struct sweep_case *c)
{
    char text[1024];
    int len = snprintf(
        text, sizeof(text),
        "{\"model_type\": \"llama\", \"hidden_size\": %lld, \"intermediate_size\": %lld,"
        " \"num_hidden_layers\": %lld, \"num_attention_heads\": %lld,"
        " \"num_key_value_heads\": %lld, \"head_dim\": %lld, \"vocab_size\": %lld,"
        " \"max_position_embeddings\": 128, \"rms_norm_eps\": 1e-5,"
        " \"rope_theta\": 10000.0, \"initializer_range\": 0.1,"
        " \"tie_word_embeddings\": %s, \"rope_scaling\": %s}",
        (long long)c->hidden, (long long)c->ffn, (long long)c->layers, (long long)c->heads,
        (long long)c->kv_heads, (long long)c->head_dim, (long long)c->vocab,
        c->tied ? "true" : "false",
        c->llama3 ? "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0,"
                    " \"high_freq_factor\": 4.0,"
                    " \"original_max_position_embeddings\": 16}"
                  : "null");
    assert_true(len > 0 && (size_t)len < sizeof(text));
    assert_int_equal(fs_write_atomic(c->config, text, (size_t)len, 0600, NULL), 0);
}

/* A step and a half of samples and a rest that fills none: the second step begins a new epoch. */
static void write_tokens(const struct sweep_case *c)
{
    size_t num = (size_t)((c->batch * 3 / 2 + 1) * (c->seq_len + 1) + 1);
    uint16_t *tokens = malloc(num * sizeof(*tokens));
    assert_non_null(tokens);
    for (size_t i = 0; i < num; i++)
        tokens[i] = (uint16_t)(rng_u64(c->seed, rng_stream("tokens"), i) % (uint64_t)c->vocab);
    assert_int_equal(fs_write_atomic(c->tokens, tokens, num * sizeof(*tokens), 0600, NULL), 0);
    free(tokens);
}

static struct gang_spec spec_of(const struct sweep_case *c, bool one_rank)
{
    return (struct gang_spec){
        .golden = &c->sizes,
        .config = c->config,
        .data_path = c->tokens,
        .steps = NUM_STEPS,
        .batch = c->batch,
        .data = one_rank ? 1 : c->data,
        .micro = one_rank ? c->one_micro : c->micro,
        .bucket_mb = one_rank ? "25" : c->bucket_mb,
        .clip = c->clip,
        .order = c->shuffled ? "shuffled" : "sequential",
        .window = c->shared_token ? "T" : "T+1",
        .optimizer = c->adam ? NULL : "name: sgd, lr: 0.05, weight_decay: 0.01",
    };
}

static bool off(double a, double b, double tolerance)
{
    return !(fabs(a - b) <= tolerance * fabs(a));
}

static void check_curves(const struct sweep_case *c, const struct gang *one,
                         const struct gang *many, double loss_tolerance, double norm_tolerance)
{
    assert_int_equal(one->num_steps, NUM_STEPS);
    assert_int_equal(many->num_steps, NUM_STEPS);
    for (int i = 0; i < NUM_STEPS; i++) {
        const StepMetrics *x = &one->steps[i], *y = &many->steps[i];
        if (off(x->loss, y->loss, loss_tolerance) ||
            off(x->grad_norm, y->grad_norm, norm_tolerance)) {
            print_case(c);
            fail_msg("step %d: loss %.17g against %.17g, norm %.17g against %.17g", i + 1, x->loss,
                     y->loss, x->grad_norm, y->grad_norm);
        }
    }
}

static double *last_weights(const struct gang *g)
{
    char dir[512];
    assert_true(g->num_checkpoints > 0);
    fs_join(dir, sizeof(dir), g->job_dir, g->checkpoints[g->num_checkpoints - 1]);
    return gang_weights(g->plan, dir);
}

static void check_weights(const struct sweep_case *c, const struct gang *one,
                          const struct gang *many)
{
    double *x = last_weights(one), *y = last_weights(many);
    struct param_table table;
    assert_int_equal(params_expand(one->plan, 0, &table, NULL), 0);
    for (int32_t i = 0; i < table.num_params; i++) {
        const struct param *p = &table.params[i];
        double apart = 0.0, all = 0.0;
        for (int64_t j = p->offset; j < p->offset + p->numel; j++) {
            apart += (x[j] - y[j]) * (x[j] - y[j]);
            all += x[j] * x[j];
        }
        if (!(sqrt(apart) <= SAME * sqrt(all))) {
            print_case(c);
            fail_msg("%s: off by %.2e", p->name, sqrt(apart / all));
        }
    }
    params_free(&table);
    free(x);
    free(y);
}

static void run_case(uint64_t seed)
{
    struct sweep_case c;
    draw_case(seed, &c);
    if (getenv("TANDEM_VERBOSE") != NULL)
        print_case(&c);
    char *dir = gang_make_dir(), *one_dir = gang_make_dir(), *many_dir = gang_make_dir();
    fs_join(c.config, sizeof(c.config), dir, "config.json");
    fs_join(c.tokens, sizeof(c.tokens), dir, "tokens.bin");
    write_config(&c);
    write_tokens(&c);
    struct gang_spec one_spec = spec_of(&c, true), many_spec = spec_of(&c, false);
    struct gang one = {.plan = gang_plan(&one_spec), .job_dir = one_dir};
    struct gang many = {.plan = gang_plan(&many_spec), .job_dir = many_dir};
    gang_run_well(&one);
    gang_run_well(&many);
    check_curves(&c, &one, &many, SAME, SAME);
    if (!c.adam)
        check_weights(&c, &one, &many);
    many_spec.backend = "cpu";
    many_spec.precision = "fp32";
    struct gang fast = {.plan = gang_plan(&many_spec)};
    gang_run_well(&fast);
    check_curves(&c, &one, &fast, NEAR_LOSS, NEAR_NORM);
    plan__free_unpacked((Plan *)one.plan, NULL);
    plan__free_unpacked((Plan *)many.plan, NULL);
    plan__free_unpacked((Plan *)fast.plan, NULL);
    gang_remove_dir(dir);
    gang_remove_dir(one_dir);
    gang_remove_dir(many_dir);
}

static uint64_t number_from(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : fallback;
}

/* No layout, no batch split and no shape changes what a step computes. */
static void every_drawn_layout_computes_what_one_rank_does(void **state)
{
    (void)state;
    uint64_t first = number_from("TANDEM_SEED", 1);
    uint64_t cases = number_from("TANDEM_FULL", 0)     ? CASES_FULL
                     : number_from("TANDEM_SAMPLE", 0) ? CASES_SAMPLE
                                                       : CASES_DEFAULT;
    cases = number_from("TANDEM_CASES", cases);
    for (uint64_t i = 0; i < cases; i++)
        run_case(first + i);
}

int main(void)
{
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_drawn_layout_computes_what_one_rank_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
