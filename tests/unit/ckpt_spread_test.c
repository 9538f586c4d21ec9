/* Weights in and out on any layout: random draws, Hugging Face folders and exports don't depend on
 * it, and a rank reads what it needs. TANDEM_SEED=n runs from another seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "model/config.h"
#include "runtime/ckpt/safetensors.h"
#include "tests/effort.h"
#include "tests/unit/ckpt_fixture.h"
#include "tests/unit/ckpt_layout.h"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/tandem-layout-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

/* Hundreds of files, read again by this process: nothing to wait for. */
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    (void)fd;
    return 0;
}

static int64_t pread_bytes; /* of the tests' own thread */
ssize_t __real_pread(int fd, void *out, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *out, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *out, size_t len, off_t at)
{
    ssize_t n = __real_pread(fd, out, len, at);
    pread_bytes += n > 0 ? n : 0;
    return n;
}

static int remove_root(void **state)
{
    (void)state;
    return fs_remove_tree(root, NULL);
}

/* ---- weights from elsewhere --------------------------------------------------------------------
 */

/* Each element of b's weights on each rank is one_rank's, which a checkpoint carries over. */
static void assert_same_weights(const struct layout *whole, struct layout *b)
{
    struct layout again;
    struct ckpt_meta meta;
    struct error err = {0};
    char dir[256];
    static int64_t step;
    layout_save_ok(whole, root, ++step, dir);
    layout_new(&again, &b->spec);
    assert_int_equal(layout_load(&again, dir, &meta, &err), 0);
    for (int32_t i = 0; i < b->num_ranks; i++) {
        assert_memory_equal(again.ranks[i].state.weights.data, b->ranks[i].state.weights.data,
                            (size_t)b->ranks[i].numel[0] * dtype_size(b->spec.dtype));
    }
    layout_free(&again);
}

/* Also where a shard begins in the middle of a pair of draws. */
static void no_layout_changes_a_draw(void **state)
{
    (void)state;
    uint64_t first = layout_first_seed();
    for (int i = 0; i < effort(200, 24, 8); i++) {
        uint64_t seed = first + (uint64_t)i;
        struct layout_spec spec = layout_draw(&layout_models[seed % LAYOUT_NUM_MODELS], seed);
        struct layout_spec one = layout_one_rank(&spec.model, spec.dtype, false);
        struct layout whole, l;
        spec.moments = false;
        layout_new(&whole, &one);
        layout_new(&l, &spec);
        ckpt_init_random(&whole.ranks[0].state, seed);
        for (int32_t r = 0; r < l.num_ranks; r++) {
            ckpt_init_random(&l.ranks[r].state, seed);
        }
        assert_same_weights(&whole, &l);
        layout_free(&whole);
        layout_free(&l);
    }
}

/* ---- exports -----------------------------------------------------------------------------------
 */

static void export_ok(const struct layout *l, const char *ckpt_dir, const char *out)
{
    struct error err = {0};
    if (ckpt_export_hf(out, ckpt_dir, &l->table, l->config, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static char *read_all(const char *dir, const char *name, size_t *len)
{
    char path[300], *text;
    struct error err = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (fs_read_file(path, 1 << 24, &text, len, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return text;
}

static void assert_same_file(const char *dir_a, const char *dir_b, const char *name)
{
    size_t len_a, len_b;
    char *a = read_all(dir_a, name, &len_a), *b = read_all(dir_b, name, &len_b);
    assert_int_equal(len_a, len_b);
    assert_memory_equal(a, b, len_a);
    free(a);
    free(b);
}

/* The export of a run on many ranks is, byte by byte, that of one rank: true rows (331 on 4 ranks),
 * no padding, no tied head; and it loads in one rank and in others. */
static void the_export_of_any_layout_is_that_of_one_rank(void **state)
{
    (void)state;
    for (size_t i = 0; i < LAYOUT_NUM_MODELS; i++) {
        struct layout_spec one = layout_one_rank(&layout_models[i], DTYPE_F32, true);
        struct layout_spec spec = one;
        struct layout whole, l, got;
        struct error err = {0};
        char dir[256], out_a[128], out_b[128];
        spec.tensor = 4;
        spec.shards = 2;
        spec.zero_stage = 3;
        spec.num_buckets = 4;
        layout_new(&whole, &one);
        layout_new(&l, &spec);
        layout_fill(&whole, i + 1);
        layout_fill(&l, i + 1);
        snprintf(out_a, sizeof out_a, "%s/export-a", root);
        snprintf(out_b, sizeof out_b, "%s/export-b", root);
        layout_save_ok(&whole, root, (int64_t)(2 * i + 1), dir);
        export_ok(&whole, dir, out_a);
        layout_save_ok(&l, root, (int64_t)(2 * i + 2), dir);
        export_ok(&l, dir, out_b);
        assert_same_file(out_a, out_b, "model.safetensors");
        assert_same_file(out_a, out_b, "config.json");
        const struct layout_spec *readers[] = {&one, &spec};
        for (int k = 0; k < 2; k++) {
            layout_new(&got, readers[k]);
            for (int32_t r = 0; r < got.num_ranks; r++) {
                if (ckpt_load_hf(NULL, out_b, &got.ranks[r].state, &err) != 0) {
                    fail_msg("%s", err.text);
                }
            }
            const char *wrong = layout_differs(&got, i + 1, true);
            if (wrong) {
                fail_msg("%s: %s", layout_models[i].family, wrong);
            }
            layout_free(&got);
        }
        layout_free(&whole);
        layout_free(&l);
    }
}

/* What stands in an exported folder is what Hugging Face's own stands there: names, shapes and
 * order of the dimensions (GPT-2's matrices are [in, out]), and a config.json that says the same.
 */
static void an_export_has_hugging_faces_names_and_shapes(void **state)
{
    (void)state;
    static const char *const families[] = {"llama-tiny", "llama-tied", "qwen2-tiny", "qwen3-tiny",
                                           "gpt2-tiny"};
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        struct layout_spec spec =
            layout_one_rank(&(struct layout_model){families[i], 0, 0, 0}, DTYPE_F32, false);
        struct layout l;
        struct error err = {0};
        char dir[256], out[128], path[300];
        struct st_file *file;
        ModelConfig *config;
        spec.tensor = 2;
        layout_new(&l, &spec);
        layout_fill(&l, 1);
        layout_save_ok(&l, root, (int64_t)i + 1, dir);
        snprintf(out, sizeof out, "%s/export", root);
        export_ok(&l, dir, out);
        snprintf(path, sizeof path, "%s/model.safetensors", out);
        assert_int_equal(st_open(&file, NULL, path, &err), 0);
        const struct st_header *h = st_file_header(file);
        assert_int_equal(h->num_tensors, l.table.num_params);
        bool tied = l.config->tie_word_embeddings;
        assert_true(!st_header_find(h, "lm_head.weight") == tied);
        if (strcmp(families[i], "gpt2-tiny") == 0) {
            const struct st_tensor *t = st_header_find(h, "transformer.h.1.attn.c_attn.weight");
            assert_non_null(t);
            assert_true(t->shape[0] == 64 && t->shape[1] == 192);
            t = st_header_find(h, "transformer.h.0.mlp.c_proj.weight");
            assert_non_null(t);
            assert_true(t->shape[0] == 256 && t->shape[1] == 64);
        }
        st_close(file);
        size_t len;
        char *text = read_all(out, "config.json", &len);
        assert_int_equal(config_parse(path, text, len, &config, &err), 0);
        assert_string_equal(config->model_type, l.config->model_type);
        assert_int_equal(config->vocab_size, l.config->vocab_size);
        assert_int_equal(config->head_dim, l.config->head_dim);
        assert_int_equal(config->num_key_value_heads, l.config->num_key_value_heads);
        assert_int_equal(config->tie_word_embeddings, l.config->tie_word_embeddings);
        free(text);
        model_config__free_unpacked(config, NULL);
        layout_free(&l);
    }
}

/* ---- how much is read --------------------------------------------------------------------------
 */

/* Rows of a tensor rank's own are read alone; columns with the gaps between them, as those are
 * short; a shard of the flat layout reads its own slice. */
static void a_rank_reads_what_it_needs(void **state)
{
    (void)state;
    enum { ROWS = 512, COLUMNS = 256, NUMEL = ROWS * COLUMNS };
    struct param p = {
        .name = "w", .num_dims = 2, .shape = {ROWS, COLUMNS}, .numel = NUMEL, .init_std = 1};
    struct param_table table = {.params = &p, .num_params = 1, .flat_numel = NUMEL};
    float *whole = calloc(NUMEL, 4), *part = calloc(NUMEL, 4);
    struct flat_range slice = {1000, 500, 0};
    struct ckpt_state s = {.table = &table, .dtype = DTYPE_F32, .weights = {.data = whole}};
    struct ckpt_meta meta = fixture_meta(1, 1);
    struct ckpt_save *save;
    struct error err = {0};
    char dir[256];
    int64_t bytes, header = 400;
    assert_true(whole && part);
    ckpt_init_random(&s, 1);
    assert_int_equal(ckpt_save_write(&save, root, &s, &meta, 0, 1, &err), 0);
    assert_int_equal(ckpt_save_seal(save, &err), 0);
    ckpt_save_free(save);
    assert_int_equal(ckpt_commit(root, &meta, 1, dir, sizeof dir, &bytes, &err), 0);
    s.weights.data = part;
    s.tensor = 4;
    s.tensor_idx = 2;
    p.tensor_shard = true;
    p.shard_groups = 1;
    for (int dim = 0; dim < 2; dim++) {
        p.shard_dim = dim;
        p.numel = table.flat_numel = NUMEL / 4;
        pread_bytes = 0;
        assert_int_equal(ckpt_load(dir, &s, &meta, &err), 0);
        assert_true(pread_bytes <= header + (dim == 0 ? NUMEL / 4 : NUMEL) * 4);
        for (int64_t i = 0; i < NUMEL / 4; i++) {
            int64_t row = i / (COLUMNS / 4), column = i % (COLUMNS / 4);
            assert_true(part[i] ==
                        whole[dim == 0 ? NUMEL / 2 + i : row * COLUMNS + COLUMNS / 2 + column]);
        }
    }
    p.tensor_shard = false;
    p.numel = table.flat_numel = NUMEL;
    s.weights.ranges = &slice;
    s.weights.num_ranges = 1;
    pread_bytes = 0;
    assert_int_equal(ckpt_load(dir, &s, &meta, &err), 0);
    assert_true(pread_bytes <= header + 500 * 4);
    assert_memory_equal(part, whole + 1000, 500 * 4);
    free(whole);
    free(part);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        EACH(no_layout_changes_a_draw),
        EACH(the_export_of_any_layout_is_that_of_one_rank),
        EACH(a_rank_reads_what_it_needs),
        EACH(an_export_has_hugging_faces_names_and_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
