/* Where weights come from and go to: random draws, Hugging Face folders, exports. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/ckpt/safetensors.h"
#include "tests/unit/ckpt_fixture.h"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/tandem-weights-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return fs_remove_tree(root, NULL);
}

/* ---- random draws ------------------------------------------------------------------------------
 */

/* Known answers, from another implementation of the rule: jobs are compared across versions by
 * their first loss. */
static void draws_are_fixed_for_ever(void **state)
{
    (void)state;
    struct fixture f;
    fixture_new(&f, DTYPE_F64, false, 0);
    ckpt_init_random(&f.state, 1234);
    const double *v = f.state.weights.data;
    assert_string_equal(f.table.params[0].name, "lm_head.weight");
    assert_true(fabs(v[0] - 0.02112509069394456) < 1e-16);
    assert_true(fabs(v[1] - -0.0014109150166257368) < 1e-16);
    assert_true(fabs(v[200] - 0.0007087278113750656) < 1e-16);
    assert_true(fabs(v[201] - 0.010697600443296732) < 1e-16);
    fixture_free(&f);
}

/* No layout changes a draw. */
static void draws_depend_on_seed_name_and_element_alone(void **state)
{
    (void)state;
    struct fixture a, b;
    fixture_new(&a, DTYPE_F64, false, 0);
    fixture_new(&b, DTYPE_F64, false, 0);
    /* Another table: other order, other places, one parameter less. */
    for (int32_t i = 0, n = b.table.num_params; i < n / 2; i++) {
        struct param keep = b.table.params[i];
        b.table.params[i] = b.table.params[n - 1 - i];
        b.table.params[n - 1 - i] = keep;
    }
    b.table.num_params--;
    int64_t at = 0;
    for (int32_t i = 0; i < b.table.num_params; i++) {
        b.table.params[i].offset = at;
        at += (b.table.params[i].numel + 15) / 16 * 16;
    }
    ckpt_init_random(&a.state, 1234);
    ckpt_init_random(&b.state, 1234);
    for (int32_t i = 0; i < b.table.num_params; i++) {
        const struct param *q = &b.table.params[i];
        const struct param *p = &a.table.params[params_find(&a.table, q->name)];
        assert_memory_equal((double *)a.state.weights.data + p->offset,
                            (double *)b.state.weights.data + q->offset, (size_t)p->numel * 8);
    }
    /* float is the double, rounded. */
    struct fixture c;
    fixture_new(&c, DTYPE_F32, false, 0);
    ckpt_init_random(&c.state, 1234);
    for (int64_t i = 0; i < a.table.flat_numel; i++) {
        assert_true(((float *)c.state.weights.data)[i] ==
                    (float)((double *)a.state.weights.data)[i]);
    }
    ckpt_init_random(&c.state, 1235);
    assert_true(((float *)c.state.weights.data)[0] != (float)((double *)a.state.weights.data)[0]);
    fixture_free(&a);
    fixture_free(&b);
    fixture_free(&c);
}

/* Moments of a large tensor, pairs uncorrelated, norms are ones. */
static void draws_are_normal_with_the_tables_deviation(void **state)
{
    (void)state;
    enum { N = 400001 };
    struct param params[2] = {
        {.name = "w", .num_dims = 1, .shape = {N}, .numel = N, .init_std = 0.5},
        {.name = "n",
         .num_dims = 1,
         .shape = {3},
         .numel = 3,
         .offset = N + 15,
         .init_ones = true}};
    struct param_table table = {.params = params, .num_params = 2, .flat_numel = N + 18};
    double *v = calloc(N + 18, sizeof *v);
    assert_non_null(v);
    struct ckpt_state s = {.table = &table, .dtype = DTYPE_F64, .weights = {.data = v}};
    ckpt_init_random(&s, 7);
    double sum = 0, square = 0, fourth = 0, neighbours = 0;
    for (int i = 0; i < N; i++) {
        double x = v[i] / 0.5;
        sum += x;
        square += x * x;
        fourth += x * x * x * x;
        neighbours += i ? x * v[i - 1] / 0.5 : 0;
    }
    /* Five standard errors each. */
    assert_true(fabs(sum / N) < 5 / sqrt(N));
    assert_true(fabs(square / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(fourth / N - 3) < 5 * sqrt(96.0 / N));
    assert_true(fabs(neighbours / N) < 5 / sqrt(N));
    assert_true(v[N + 15] == 1 && v[N + 17] == 1);
    assert_true(v[N] == 0 && v[N + 14] == 0);
    free(v);
}

/* ---- Hugging Face folders ----------------------------------------------------------------------
 */

static void write_hf(const char *name, struct st_tensor *tensors, int32_t num, const void *data)
{
    char *header, path[256];
    size_t header_len;
    uint64_t data_bytes;
    struct error err = {0};
    assert_int_equal(st_layout(tensors, num, NULL, &header, &header_len, &data_bytes, &err), 0);
    header = realloc(header, header_len + data_bytes);
    assert_non_null(header);
    memcpy(header + header_len, data, data_bytes);
    snprintf(path, sizeof path, "%s/%s", root, name);
    assert_int_equal(fs_write_atomic(path, header, header_len + data_bytes, 0600, &err), 0);
    free(header);
}

static void load_hf_fails(const struct ckpt_state *s, const char *words)
{
    struct error err = {0};
    if (ckpt_load_hf(NULL, root, s, &err) == 0) {
        fail_msg("was loaded, though: %s", words);
    }
    if (!strstr(err.text, words)) {
        fail_msg("says \"%s\", wanted \"%s\"", err.text, words);
    }
}

/* Every parameter with its shape, nothing unknown; what old exports carry besides is passed over.
 */
static void a_folder_must_have_exactly_the_models_tensors(void **state)
{
    (void)state;
    struct param params[2] = {
        {.name = "a", .num_dims = 2, .shape = {2, 2}, .numel = 4, .tied = true},
        {.name = "b", .num_dims = 1, .shape = {3}, .numel = 3, .offset = 16}};
    struct param_table table = {.params = params, .num_params = 2, .flat_numel = 32};
    float v[32] = {0}, data[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    struct ckpt_state s = {.table = &table, .dtype = DTYPE_F32, .weights = {.data = v}};
    struct error err = {0};
    char names[4][40] = {"b", "a", "m.rotary_emb.inv_freq", "lm_head.weight"};
    struct st_tensor t[4] = {{.name = names[0], .dtype = ST_F32, .num_dims = 1, .shape = {3}},
                             {.name = names[1], .dtype = ST_F32, .num_dims = 2, .shape = {2, 2}},
                             {.name = names[2], .dtype = ST_F32, .num_dims = 1, .shape = {2}},
                             {.name = names[3], .dtype = ST_F32, .num_dims = 1, .shape = {2}}};
    write_hf("model.safetensors", t, 4, data);
    if (ckpt_load_hf(NULL, root, &s, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_true(v[0] == 4 && v[3] == 7 && v[16] == 1 && v[18] == 3 && v[4] == 0 && v[19] == 0);
    params[0].tied = false;
    load_hf_fails(&s, "tensor \"lm_head.weight\" is not one of the model's parameters");
    params[0].tied = true;
    write_hf("model.safetensors", t, 1, data);
    load_hf_fails(&s, "tensor \"a\" is missing");
    t[1].shape[1] = 3;
    write_hf("model.safetensors", t, 2, data);
    load_hf_fails(&s, "tensor \"a\" is [2, 3], the model wants [2, 2]");
    t[1].shape[1] = 2;
    t[1].dtype = ST_I32;
    write_hf("model.safetensors", t, 2, data);
    load_hf_fails(&s, "tensor \"a\" is stored as I32");
}

/* GPT-2 as it was first published: no "transformer." before the names, masks among the tensors. A
 * folder with both spellings of one name is not silently half read. */
static void gpt2_as_first_published_loads(void **state)
{
    (void)state;
    struct param params[2] = {
        {.name = "transformer.wte.weight", .num_dims = 1, .shape = {4}, .numel = 4, .tied = true},
        {.name = "transformer.h.0.ln_1.bias",
         .num_dims = 1,
         .shape = {3},
         .numel = 3,
         .offset = 16}};
    struct param_table table = {.params = params, .num_params = 2, .flat_numel = 32};
    float v[32] = {0}, data[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    struct ckpt_state s = {.table = &table, .dtype = DTYPE_F32, .weights = {.data = v}};
    struct error err = {0};
    char names[5][40] = {"wte.weight", "h.0.ln_1.bias", "h.0.attn.bias", "lm_head.weight",
                         "transformer.h.0.ln_1.bias"};
    struct st_tensor t[5] = {{.name = names[0], .dtype = ST_F32, .num_dims = 1, .shape = {4}},
                             {.name = names[1], .dtype = ST_F32, .num_dims = 1, .shape = {3}},
                             {.name = names[2], .dtype = ST_F32, .num_dims = 1, .shape = {2}},
                             {.name = names[3], .dtype = ST_F32, .num_dims = 1, .shape = {4}},
                             {.name = names[4], .dtype = ST_F32, .num_dims = 1, .shape = {3}}};
    write_hf("model.safetensors", t, 4, data);
    if (ckpt_load_hf(NULL, root, &s, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_true(v[0] == 1 && v[3] == 4 && v[16] == 5 && v[18] == 7 && v[19] == 0);
    write_hf("model.safetensors", t, 5, data);
    load_hf_fails(&s, "\"transformer.h.0.ln_1.bias\" is not one of the model's parameters");
    write_hf("model.safetensors", t, 1, data);
    load_hf_fails(&s, "tensor \"transformer.h.0.ln_1.bias\" is missing");
}

/* ---- exports -----------------------------------------------------------------------------------
 */

static void export_ok(const char *out, const struct fixture *f, const ModelConfig *config,
                      int64_t shard_bytes)
{
    struct error err = {0};
    char dir[256];
    static int64_t step;
    fixture_checkpoint(root, f, ++step, dir);
    if (ckpt_export_hf_shards(out, dir, &f->table, config, shard_bytes, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

/* One file or many shards, both precisions: the same weights again, and an older export is gone. */
static void an_export_loads_again_and_equals(void **state)
{
    (void)state;
    ModelConfig config = MODEL_CONFIG__INIT;
    char out[128], path[256];
    config.model_type = (char[]){"llama"};
    config.hidden_size = 12;
    snprintf(out, sizeof out, "%s/export", root);
    static const int64_t sizes[] = {1000000, 3000, 1};
    for (int kind = 0; kind < 2; kind++) {
        for (size_t i = 0; i < 3; i++) {
            struct fixture f, got;
            struct error err = {0};
            struct st_folder *folder;
            fixture_new(&f, kind ? DTYPE_F64 : DTYPE_F32, false, 9 + i);
            fixture_like(&got, &f);
            export_ok(out, &f, &config, sizes[i]);
            if (ckpt_load_hf(NULL, out, &got.state, &err) != 0) {
                fail_msg("%s", err.text);
            }
            fixture_assert_equal(&got, &f);
            assert_int_equal(st_folder_open(&folder, NULL, out, &err), 0);
            int32_t files = st_folder_num_files(folder);
            st_folder_close(folder);
            assert_true(i == 0 ? files == 1 : i == 1 ? files > 1 : files == f.table.num_params);
            snprintf(path, sizeof path, "%s/model.safetensors", out);
            assert_true(fs_exists(path) == (i == 0));
            snprintf(path, sizeof path, "%s/config.json", out);
            char *text;
            size_t len;
            assert_int_equal(fs_read_file(path, 100000, &text, &len, &err), 0);
            assert_non_null(strstr(text, kind ? "float64" : "float32"));
            free(text);
            snprintf(path, sizeof path, "%s.tmp", out);
            assert_false(fs_exists(path));
            fixture_free(&f);
            fixture_free(&got);
        }
    }
}

/* To the nearest, ties to even; written out for this test alone. */
static uint16_t rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t low = bits & 0xffff, high = bits >> 16;
    if ((bits & 0x7f800000) == 0x7f800000 && (bits & 0x7fffff) != 0) {
        return (uint16_t)(high | 0x40);
    }
    return (uint16_t)(high + (low > 0x8000 || (low == 0x8000 && (high & 1))));
}

static float widened(uint16_t low)
{
    uint32_t bits = (uint32_t)low << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A bf16 run exports what its layers saw: the masters, rounded; half of the bytes, and a type that
 * config.json names. Such a folder fills the masters of another run, or an fp32 run, exactly. */
static void an_export_of_a_bf16_run_is_rounded_and_loads_into_masters(void **state)
{
    (void)state;
    ModelConfig config = MODEL_CONFIG__INIT;
    char out[128], path[256], *text;
    struct fixture f, got;
    struct error err = {0};
    struct st_folder *folder;
    const struct st_file *file;
    size_t len;
    config.model_type = (char[]){"llama"};
    config.hidden_size = 12;
    snprintf(out, sizeof out, "%s/export", root);
    fixture_new(&f, DTYPE_F32, false, 21);
    float *masters = f.state.weights.data;
    const struct param *first = &f.table.params[0];
    const uint32_t ties[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0x00008000};
    memcpy(masters + first->offset, ties, sizeof ties);
    f.state.bf16 = true;
    export_ok(out, &f, &config, 1000000);
    assert_int_equal(st_folder_open(&folder, NULL, out, &err), 0);
    for (int32_t i = 0; i < f.table.num_params; i++) {
        const struct param *p = &f.table.params[i];
        const struct st_tensor *t = st_folder_find(folder, p->name, &file);
        assert_non_null(t);
        assert_int_equal(t->dtype, ST_BF16);
        const uint16_t *low = st_file_data(file, t);
        for (int64_t k = 0; k < p->numel; k++) {
            assert_int_equal(low[k], rounded(masters[p->offset + k]));
        }
    }
    st_folder_close(folder);
    snprintf(path, sizeof path, "%s/config.json", out);
    assert_int_equal(fs_read_file(path, 100000, &text, &len, &err), 0);
    assert_non_null(strstr(text, "\"torch_dtype\": \"bfloat16\""));
    free(text);
    fixture_like(&got, &f);
    assert_int_equal(ckpt_load_hf(NULL, out, &got.state, &err), 0);
    for (int32_t i = 0; i < f.table.num_params; i++) {
        const struct param *p = &f.table.params[i];
        for (int64_t k = p->offset; k < p->offset + p->numel; k++) {
            float want = widened(rounded(masters[k]));
            assert_memory_equal((float *)got.state.weights.data + k, &want, sizeof want);
        }
    }
    fixture_free(&f);
    fixture_free(&got);
}

static void an_export_that_fails_leaves_the_older_one(void **state)
{
    (void)state;
    ModelConfig config = MODEL_CONFIG__INIT;
    struct fixture f;
    struct error err = {0};
    char path[256], dir[256];
    config.model_type = (char[]){"llama"};
    fixture_new(&f, DTYPE_F32, false, 9);
    fixture_checkpoint(root, &f, 1, dir);
    assert_int_equal(ckpt_export_hf("/proc/nowhere/export", dir, &f.table, &config, &err), -1);
    assert_non_null(strstr(err.text, "export to /proc/nowhere/export"));
    snprintf(path, sizeof path, "%s/export/", root);
    assert_int_equal(ckpt_export_hf(path, dir, &f.table, &config, &err), -1);
    assert_int_equal(ckpt_export_hf("", dir, &f.table, &config, &err), -1);
    fixture_free(&f);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        EACH(draws_are_fixed_for_ever),
        EACH(draws_depend_on_seed_name_and_element_alone),
        EACH(draws_are_normal_with_the_tables_deviation),
        EACH(a_folder_must_have_exactly_the_models_tensors),
        EACH(gpt2_as_first_published_loads),
        EACH(an_export_loads_again_and_equals),
        EACH(an_export_of_a_bf16_run_is_rounded_and_loads_into_masters),
        EACH(an_export_that_fails_leaves_the_older_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
