/* Continuing a text: passes over a span against whole passes, the draw, the folders it reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../parallel/gang.h"
#include "../parallel/reference.h"
#include "base/fs.h"
#include "base/rng.h"
#include "runtime/tool/generator.h"

static struct generator *open_golden(const struct golden *golden)
{
    struct generator *g;
    struct error err = {0};
    if (generator_open(&g, golden_path(golden, ""), 1, &err) != 0)
        fail_msg("%s", err.text);
    return g;
}

static void generate(struct generator *g, const struct sampling *sampling, int32_t *out, int num)
{
    struct error err = {0};
    for (int i = 0; i < num; i++)
        if (generator_next(g, sampling, &out[i], &err) != 0)
            fail_msg("%s", err.text);
}

/* Going on from kept keys and values gives what a pass over the whole text gives; in every family.
 */
static void kept_keys_change_nothing(void **state)
{
    (void)state;
    enum { NUM = 24 };
    static const struct golden *const all[] = {&golden_tied, &golden_qwen2, &golden_qwen3,
                                               &golden_gpt2};
    const struct sampling greedy = {0};
    for (size_t f = 0; f < sizeof(all) / sizeof(all[0]); f++) {
        int32_t kept[NUM], prompt[3] = {72, 101, 108};
        struct generator *g = open_golden(all[f]);
        assert_int_equal(generator_feed(g, prompt, 3, NULL), 0);
        generate(g, &greedy, kept, NUM);
        generator_close(g);
        for (int i = 0; i < NUM; i++) {
            int32_t next;
            g = open_golden(all[f]);
            assert_int_equal(generator_feed(g, prompt, 3, NULL), 0);
            assert_int_equal(generator_feed(g, kept, i, NULL), 0);
            generate(g, &greedy, &next, 1);
            assert_int_equal(next, kept[i]);
            generator_close(g);
        }
    }
}

/* The likeliest next token, step by step, is the one that Hugging Face's logits of the whole text
 * say. */
static void one_step_gives_the_reference_s_choice(void **state)
{
    (void)state;
    static const struct golden *const all[] = {&golden_tiny, &golden_qwen2, &golden_qwen3,
                                               &golden_gpt2};
    const struct sampling greedy = {0};
    for (size_t f = 0; f < sizeof(all) / sizeof(all[0]); f++) {
        struct reference r = reference_open(all[f]);
        struct generator *g = open_golden(all[f]);
        int64_t v = generator_config(g)->vocab_size, num = all[f]->seq_len;
        double *logits = reference_read(&r, "logits", num * v);
        for (int64_t t = 0; t < num; t++) {
            int32_t next, likeliest = 0;
            for (int32_t id = 1; id < v; id++)
                if (logits[t * v + id] > logits[t * v + likeliest])
                    likeliest = id;
            generator_close(g);
            g = open_golden(all[f]);
            assert_int_equal(generator_feed(g, r.ids, t + 1, NULL), 0);
            generate(g, &greedy, &next, 1);
            assert_int_equal(next, likeliest);
        }
        free(logits);
        generator_close(g);
        reference_close(&r);
    }
}

/* A text may be longer than the window (128 positions here). */
static void a_text_goes_on_behind_the_window(void **state)
{
    (void)state;
    enum { NUM = 300 };
    const struct sampling sampling = {.temperature = 1.0, .top_k = 20, .seed = 5};
    static int32_t a[NUM], b[NUM], prompt[200];
    for (int i = 0; i < 200; i++)
        prompt[i] = i;
    for (int i = 0; i < 2; i++) {
        struct generator *g = open_golden(&golden_tiny);
        assert_int_equal(generator_feed(g, prompt, 200, NULL), 0);
        generate(g, &sampling, i == 0 ? a : b, NUM);
        generator_close(g);
    }
    /* The same seed gives the same text. */
    assert_memory_equal(a, b, sizeof(a));
}

static void a_token_outside_the_vocabulary_is_refused(void **state)
{
    (void)state;
    struct error err = {0};
    struct generator *g = open_golden(&golden_tiny);
    int32_t id = 256;
    assert_int_equal(generator_feed(g, &id, 1, &err), -1);
    assert_non_null(strstr(err.text, "0 to 255"));
    generator_close(g);
}

/* Models for chats have several ends of a turn; a text that went on behind one would answer itself.
 */
static void each_end_token_of_the_config_ends_a_text(void **state)
{
    (void)state;
    char *dir = gang_make_dir(), path[512], weights[PATH_MAX], *text, *config = NULL;
    size_t len;
    assert_int_equal(
        fs_read_file(golden_path(&golden_tiny, "config.json"), 65536, &text, &len, NULL), 0);
    char *key = strstr(text, "\"eos_token_id\": ");
    assert_non_null(key);
    size_t head = (size_t)(key - text);
    assert_true(asprintf(&config, "%.*s\"eos_token_id\": [7, 9, 11]%s", (int)head, text,
                         key + strcspn(key, ",\n")) > 0);
    snprintf(path, sizeof(path), "%s/config.json", dir);
    assert_int_equal(fs_write_atomic(path, config, strlen(config), 0600, NULL), 0);
    snprintf(path, sizeof(path), "%s/model.safetensors", dir);
    assert_non_null(realpath(golden_path(&golden_tiny, "model.safetensors"), weights));
    assert_int_equal(symlink(weights, path), 0);
    struct generator *g;
    struct error err = {0};
    if (generator_open(&g, dir, 1, &err) != 0)
        fail_msg("%s", err.text);
    for (int32_t id = 0; id < 256; id++)
        assert_true(generator_is_end(g, id) == (id == 7 || id == 9 || id == 11));
    generator_close(g);
    g = open_golden(&golden_tiny);
    assert_true(generator_is_end(g, (int32_t)generator_config(g)->eos_token_id));
    assert_false(generator_is_end(g, 7));
    generator_close(g);
    free(config);
    free(text);
    gang_remove_dir(dir);
}

/* Each token comes as often as its probability says. */
static void draws_follow_the_softmax(void **state)
{
    (void)state;
    enum { NUM = 20000 };
    const float logits[4] = {0.0F, 1.0F, 2.0F, -1.0F};
    const struct sampling sampling = {.temperature = 0.5};
    int32_t order[4];
    int counts[4] = {0};
    for (uint64_t i = 0; i < NUM; i++)
        counts[generator_pick(logits, 4, &sampling, rng_uniform(1, 2, i), order)]++;
    double sum = 0.0;
    for (int i = 0; i < 4; i++)
        sum += exp(2.0 * (double)logits[i]);
    for (int i = 0; i < 4; i++) {
        double p = exp(2.0 * (double)logits[i]) / sum;
        /* Five standard deviations; the draws are fixed, so it holds or it doesn't. */
        assert_true(fabs((double)counts[i] / NUM - p) < 5.0 * sqrt(p * (1.0 - p) / NUM) + 1e-9);
    }
}

static void top_k_and_temperature_zero_narrow_the_choice(void **state)
{
    (void)state;
    const float logits[4] = {0.0F, 1.0F, 2.0F, 1.0F};
    struct sampling sampling = {.temperature = 1.0, .top_k = 2};
    int32_t order[4];
    for (uint64_t i = 0; i < 1000; i++) {
        int32_t id = generator_pick(logits, 4, &sampling, rng_uniform(1, 2, i), order);
        /* Of equals the lower number. */
        assert_true(id == 2 || id == 1);
    }
    sampling.temperature = 0.0;
    assert_int_equal(generator_pick(logits, 4, &sampling, 0.999, order), 2);
}

static void check_checkpoint(const struct gang_spec *spec)
{
    char *dir = gang_make_dir(), path[512];
    struct gang run = {.plan = gang_plan(spec), .job_dir = dir};
    gang_run_well(&run);
    const struct sampling greedy = {0};
    int32_t texts[2][30], prompt = 65;
    for (int i = 0; i < 2; i++) {
        struct generator *g;
        struct error err = {0};
        snprintf(path, sizeof(path), "%s/%s", dir, i == 0 ? run.export_dir : run.checkpoints[0]);
        if (generator_open(&g, path, 1, &err) != 0)
            fail_msg("%s", err.text);
        assert_int_equal(generator_feed(g, &prompt, 1, NULL), 0);
        generate(g, &greedy, texts[i], 30);
        generator_close(g);
    }
    assert_memory_equal(texts[0], texts[1], sizeof(texts[0]));
    plan__free_unpacked((Plan *)run.plan, NULL);
    gang_remove_dir(dir);
}

/* A running job's newest checkpoint can be tried out: its config.json stands in the job's folder.
 * So it is for every family, and however the job was cut. */
static void a_checkpoint_generates_what_the_export_does(void **state)
{
    (void)state;
    static const struct {
        const struct golden *golden;
        int64_t data, tensor;
    } cases[] = {
        {&golden_tiny, 2, 1}, {&golden_qwen2, 1, 4}, {&golden_qwen3, 2, 2}, {&golden_gpt2, 1, 2}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct gang_spec spec = {
            .golden = cases[i].golden,
            .data = cases[i].data,
            .tensor = cases[i].tensor,
            .sequence_parallel = cases[i].tensor > 1,
            .steps = 2,
            .backend = "cpu",
            .precision = "fp32",
            .checkpoint = "interval: 0, export_at_end: true",
        };
        check_checkpoint(&spec);
    }
}

/* What a bf16 run exports is bf16; it is tried out in fp32. */
static void an_export_of_a_bf16_run_goes_on(void **state)
{
    (void)state;
    const struct gang_spec spec = {
        .golden = &golden_tiny,
        .data = 2,
        .zero_stage = 3,
        .steps = 2,
        .precision = "bf16",
        .checkpoint = "interval: 0, export_at_end: true",
    };
    char *dir = gang_make_dir(), path[512];
    struct gang run = {.plan = gang_plan(&spec), .job_dir = dir};
    struct generator *g;
    struct error err = {0};
    const struct sampling greedy = {0};
    int32_t text[8], prompt = 65;
    gang_run_well(&run);
    snprintf(path, sizeof(path), "%s/%s", dir, run.export_dir);
    if (generator_open(&g, path, 1, &err) != 0 || generator_feed(g, &prompt, 1, &err) != 0)
        fail_msg("%s", err.text);
    generate(g, &greedy, text, 8);
    generator_close(g);
    plan__free_unpacked((Plan *)run.plan, NULL);
    gang_remove_dir(dir);
}

int main(void)
{
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_keys_change_nothing),
        cmocka_unit_test(one_step_gives_the_reference_s_choice),
        cmocka_unit_test(a_text_goes_on_behind_the_window),
        cmocka_unit_test(a_token_outside_the_vocabulary_is_refused),
        cmocka_unit_test(each_end_token_of_the_config_ends_a_text),
        cmocka_unit_test(draws_follow_the_softmax),
        cmocka_unit_test(top_k_and_temperature_zero_narrow_the_choice),
        cmocka_unit_test(a_checkpoint_generates_what_the_export_does),
        cmocka_unit_test(an_export_of_a_bf16_run_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
