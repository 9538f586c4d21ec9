/* Checkpoints between layouts (plan/pieces.h, runtime/ckpt/ckpt.h): what any ranks saved any other
 * ranks load, key by key and bit by bit; random draws, Hugging Face folders and exports don't
 * depend on the layout either. TANDEM_SEED=n runs from another seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/rng.h"
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

/* Thousands of files, read again by this process: nothing to wait for. */
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

/* Every dense family; heads that 3 and 6 divide, KV heads fewer than most ranks, an odd vocabulary
 * and one smaller than the ranks. */
static const struct layout_model models[] = {
    {"llama-tiny", 6, 3, 331}, {"llama-tied", 4, 1, 5},  {"qwen2-tiny", 8, 2, 37},
    {"qwen3-tiny", 12, 4, 41}, {"gpt2-tiny", 6, 6, 331}, {"gpt2-tiny", 8, 8, 3},
    {"llama-tiny", 0, 0, 0},   {"qwen3-tiny", 5, 5, 29},
};
#define NUM_MODELS (sizeof models / sizeof models[0])

static uint64_t first_seed(void)
{
    const char *text = getenv("TANDEM_SEED");
    return text && *text ? strtoull(text, NULL, 10) : 1;
}

static struct layout_spec one_rank(const struct layout_model *model, enum dtype dtype, bool moments)
{
    return (struct layout_spec){.model = *model,
                                .dtype = dtype,
                                .moments = moments,
                                .tensor = 1,
                                .shards = 1,
                                .replicas = 1,
                                .num_buckets = 1};
}

static void save_ok(const struct layout *l, int64_t step, char dir[256])
{
    struct ckpt_meta meta = fixture_meta(step, 1);
    struct error err = {0};
    char parent[128], text[200];
    snprintf(parent, sizeof parent, "%s/ckpt", root);
    if (layout_save(l, parent, &meta, dir, 256, &err) != 0) {
        layout_text(&l->spec, text, sizeof text);
        fail_msg("%s: %s", text, err.text);
    }
}

/* Loads into a layout whose buffers hold nothing yet. */
static void load_equals(const struct layout_spec *spec, const char *dir, uint64_t seed,
                        const char *from)
{
    struct layout l;
    struct ckpt_meta meta;
    struct error err = {0};
    char text[200];
    layout_new(&l, spec);
    layout_text(spec, text, sizeof text);
    if (layout_load(&l, dir, &meta, &err) != 0) {
        fail_msg("%s -> %s: %s", from, text, err.text);
    }
    const char *wrong = layout_differs(&l, seed, false);
    if (wrong) {
        fail_msg("%s -> %s: %s", from, text, wrong);
    }
    layout_free(&l);
}

/* ---- from any layout to any other --------------------------------------------------------------
 */

/* TRAINING 5, fault 15: weights and both moments, key by key. Every element of every tensor comes
 * back on every rank that holds it, and nothing is written where padding lies. */
static void what_any_layout_saved_any_other_loads(void **state)
{
    (void)state;
    uint64_t first = first_seed();
    int pairs = effort(4000, 160, 24);
    for (int i = 0; i < pairs; i++) {
        uint64_t seed = first + (uint64_t)i;
        const struct layout_model *model = &models[seed % NUM_MODELS];
        struct layout_spec a = layout_draw(model, 2 * seed), b = layout_draw(model, 2 * seed + 1);
        struct layout l;
        char dir[256], text[300], from[330];
        a.dtype = b.dtype = seed % 3 == 0 ? DTYPE_F64 : DTYPE_F32;
        a.moments = b.moments = seed % 5 != 0;
        layout_text(&a, text, sizeof text);
        snprintf(from, sizeof from, "seed %" PRIu64 ": %s", seed, text);
        layout_new(&l, &a);
        layout_fill(&l, seed);
        save_ok(&l, i + 1, dir);
        load_equals(&b, dir, seed, from);
        if (i % 8 == 0) {
            struct layout_spec whole = one_rank(model, a.dtype, a.moments);
            load_equals(&whole, dir, seed, from);
            load_equals(&a, dir, seed, from);
        }
        layout_free(&l);
        assert_int_equal(fs_remove_tree(dir, NULL), 0);
    }
}

/* What stands on disk doesn't tell who wrote it: all tensors of all layouts are whole, of their
 * true shape, each in one file. */
static void a_checkpoint_holds_each_tensor_whole_in_one_file(void **state)
{
    (void)state;
    struct layout_spec spec = {.model = {"gpt2-tiny", 6, 6, 331},
                               .dtype = DTYPE_F32,
                               .moments = true,
                               .tensor = 4,
                               .shards = 3,
                               .replicas = 1,
                               .zero_stage = 3,
                               .num_buckets = 5,
                               .cuts = 7};
    struct layout l;
    char dir[256], path[300];
    int seen[1000] = {0};
    layout_new(&l, &spec);
    layout_fill(&l, 1);
    save_ok(&l, 1, dir);
    for (int32_t f = 0; f < 2 * l.num_ranks; f++) {
        struct st_file *file;
        struct error err = {0};
        snprintf(path, sizeof path, "%s/%s-%d.safetensors", dir, f % 2 ? "optim" : "weights",
                 f / 2);
        assert_int_equal(st_open(&file, NULL, path, &err), 0);
        const struct st_header *h = st_file_header(file);
        for (int32_t i = 0; i < h->num_tensors; i++) {
            char name[PARAM_NAME_MAX];
            snprintf(name, sizeof name, "%s", h->tensors[i].name);
            char *tail = strstr(name, ".exp_avg");
            int kind = !tail ? 0 : strcmp(tail, ".exp_avg") == 0 ? 1 : 2;
            if (tail) {
                *tail = 0;
            }
            int32_t k = params_find(&l.table, name);
            assert_true(k >= 0);
            assert_int_equal(seen[3 * k + kind]++, 0);
            assert_memory_equal(h->tensors[i].shape, l.table.params[k].shape,
                                (size_t)h->tensors[i].num_dims * 8);
        }
        st_close(file);
    }
    for (int32_t i = 0; i < 3 * l.table.num_params; i++) {
        assert_int_equal(seen[i], 1);
    }
    layout_free(&l);
}

/* One written by the version before tensors were shared: [data parallel, two writers]. */
static void a_checkpoint_of_the_first_version_loads(void **state)
{
    (void)state;
    struct param params[3] = {
        {.name = "lm_head.weight", .num_dims = 2, .shape = {5, 4}},
        {.name = "model.norm.weight", .num_dims = 1, .shape = {4}, .numel = 4, .offset = 16},
        {.name = "model.embed_tokens.weight", .num_dims = 2, .shape = {5, 4}, .offset = 32}};
    for (int64_t idx = 0; idx < 2; idx++) {
        float buffers[3][48] = {{0}};
        struct param_table table = {.params = params, .num_params = 3, .flat_numel = 48};
        struct flat_range half[] = {{0, 20, 0}, {34, 14, 20}};
        struct ckpt_meta meta;
        struct error err = {0};
        /* Two tensor ranks: three rows each, the last one padding on the second. */
        for (int k = 0; k < 3; k += 2) {
            params[k].tensor_shard = true;
            params[k].shard_groups = 1;
            params[k].numel = 12;
        }
        struct ckpt_state s = {.table = &table,
                               .dtype = DTYPE_F32,
                               .tensor = 2,
                               .tensor_idx = idx,
                               .weights = {.data = buffers[0]},
                               .exp_avg = {buffers[1], half, 2},
                               .exp_avg_sq = {.data = buffers[2]}};
        if (ckpt_load(TANDEM_SOURCE_DIR "/tests/golden/checkpoint-v1", &s, &meta, &err) != 0) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(meta.step, 30);
        for (int i = 0; i < 12; i++) {
            bool padding = idx == 1 && i >= 8;
            float e = (float)(12 * idx + i);
            assert_true(buffers[0][i] == (padding ? 0 : e));
            assert_true(buffers[0][32 + i] == (padding ? 0 : 200 + e));
            assert_true(buffers[1][i] == (padding ? 0 : 1000 + e));
            assert_true(i < 2 || buffers[1][20 + i - 2] == (padding ? 0 : 1200 + e));
            assert_true(buffers[2][i] == (padding ? 0 : 2000 + e));
        }
        assert_true(buffers[0][16] == 100 && buffers[0][19] == 103);
        assert_true(buffers[1][16] == 1100 && buffers[1][19] == 1103);
    }
}

/* ---- damage ------------------------------------------------------------------------------------
 */

/* Readers share the check out; whatever byte of whatever file is damaged, one of them says so, and
 * none calls it anything else. */
static void damage_is_found_by_one_of_the_readers(void **state)
{
    (void)state;
    struct layout_spec spec = {.model = {"llama-tied", 4, 1, 5},
                               .dtype = DTYPE_F32,
                               .moments = true,
                               .tensor = 2,
                               .shards = 2,
                               .replicas = 1,
                               .zero_stage = 3,
                               .num_buckets = 2,
                               .cuts = 5};
    struct layout l;
    char dir[256], path[300];
    layout_new(&l, &spec);
    layout_fill(&l, 1);
    save_ok(&l, 1, dir);
    for (int file = 0; file < 8; file++) {
        for (int trial = 0; trial < effort(60, 12, 4); trial++) {
            struct ckpt_meta meta;
            int found = 0;
            snprintf(path, sizeof path, "%s/%s-%d.safetensors", dir, file % 2 ? "optim" : "weights",
                     file / 2);
            FILE *f = fopen(path, "r+");
            assert_non_null(f);
            fseek(f, 0, SEEK_END);
            long at = (long)(rng_u64(9, (uint64_t)file, (uint64_t)trial) % (uint64_t)ftell(f));
            at = trial < 4 ? 2 * trial : at; /* the header's length and beginning too */
            fseek(f, at, SEEK_SET);
            int byte = fgetc(f);
            fseek(f, at, SEEK_SET);
            fputc(byte ^ 1 << trial % 8, f);
            assert_int_equal(fflush(f), 0);
            for (int32_t i = 0; i < l.num_ranks; i++) {
                struct error err = {0};
                if (ckpt_load_share(dir, &l.ranks[i].state, &meta, i, l.num_ranks, &err) == 0) {
                    continue;
                }
                found++;
                if (err.code != ERR_DATA_LOSS || !strstr(err.text, "is damaged: SHA-256")) {
                    fail_msg("byte %ld of %s: %s", at, path, err.text);
                }
            }
            assert_true(found > 0);
            fseek(f, at, SEEK_SET);
            fputc(byte, f);
            fclose(f);
        }
    }
    layout_free(&l);
}

/* ---- at the same time --------------------------------------------------------------------------
 */

struct writer {
    pthread_t thread;
    const struct layout *l;
    const struct ckpt_meta *meta;
    pthread_barrier_t *barrier;
    int32_t idx;
    int rc;
};

static void *write_and_seal(void *arg)
{
    struct writer *w = arg;
    struct ckpt_save *save = NULL;
    int rc = ckpt_save_write(&save, root, &w->l->ranks[w->idx].state, w->meta, w->idx,
                             w->l->num_ranks, NULL);
    pthread_barrier_wait(w->barrier);
    w->rc = rc == 0 ? ckpt_save_seal(save, NULL) : rc;
    ckpt_save_free(save);
    return NULL;
}

/* Nobody waits for the owner of a file to lay it out. */
static void all_ranks_write_one_file_at_the_same_time(void **state)
{
    (void)state;
    for (int round = 0; round < effort(40, 8, 2); round++) {
        struct layout_spec spec = {.model = models[round % (int)NUM_MODELS],
                                   .dtype = DTYPE_F32,
                                   .moments = true,
                                   .tensor = 2,
                                   .shards = 2,
                                   .replicas = 2,
                                   .zero_stage = 1 + round % 3,
                                   .num_buckets = 3,
                                   .cuts = (uint64_t)round};
        struct layout l;
        struct writer writers[8];
        struct ckpt_meta meta = fixture_meta(round + 1, 1);
        struct error err = {0};
        pthread_barrier_t barrier;
        char dir[256];
        int64_t bytes;
        layout_new(&l, &spec);
        layout_fill(&l, 5);
        assert_int_equal(pthread_barrier_init(&barrier, NULL, 8), 0);
        for (int32_t i = 0; i < 8; i++) {
            writers[i] = (struct writer){.l = &l, .meta = &meta, .barrier = &barrier, .idx = i};
            assert_int_equal(pthread_create(&writers[i].thread, NULL, write_and_seal, &writers[i]),
                             0);
        }
        for (int32_t i = 0; i < 8; i++) {
            pthread_join(writers[i].thread, NULL);
            assert_int_equal(writers[i].rc, 0);
        }
        pthread_barrier_destroy(&barrier);
        assert_int_equal(ckpt_commit(root, &meta, 8, dir, sizeof dir, &bytes, &err), 0);
        struct layout_spec whole = one_rank(&spec.model, DTYPE_F32, true);
        load_equals(&whole, dir, 5, "threads");
        layout_free(&l);
    }
}

/* ---- copies for async saves --------------------------------------------------------------------
 */

static int copy_run(void *arg, int64_t to, int64_t from, int64_t numel, struct error *err)
{
    const struct ckpt_part *parts = arg;
    (void)err;
    memcpy((float *)parts[0].data + to, (const float *)parts[1].data + from, (size_t)numel * 4);
    return 0;
}

static struct ckpt_part copy_part(const struct ckpt_state *s, const struct ckpt_part *part,
                                  const struct flat_range *ranges, int64_t numel)
{
    struct ckpt_part parts[2] = {{.data = calloc((size_t)numel + 1, 4),
                                  .ranges = ranges,
                                  .num_ranges = s->owned ? s->num_owned : 1},
                                 *part};
    assert_non_null(parts[0].data);
    assert_int_equal(ckpt_copy_each(s, part, copy_run, parts, NULL), 0);
    return parts[0];
}

/* A copy of what a rank owns, and no more, is all that its save needs. */
static void copies_of_what_is_owned_save_the_same(void **state)
{
    (void)state;
    for (int32_t stage = 0; stage < 4; stage++) {
        struct layout_spec spec = {.model = models[0],
                                   .dtype = DTYPE_F32,
                                   .moments = true,
                                   .tensor = 3,
                                   .shards = stage ? 4 : 1,
                                   .replicas = 2,
                                   .zero_stage = stage,
                                   .num_buckets = 4,
                                   .cuts = 11};
        struct layout l, copy;
        struct flat_range ranges[LAYOUT_MAX_RANKS][LAYOUT_MAX_BUCKETS];
        int64_t total = 0;
        char dir[256];
        layout_new(&l, &spec);
        layout_fill(&l, 3);
        copy = l;
        for (int32_t i = 0; i < l.num_ranks; i++) {
            const struct ckpt_state *s = &l.ranks[i].state;
            struct ckpt_state *c = &copy.ranks[i].state;
            int64_t numel = ckpt_copy_layout(s, ranges[i]);
            total += numel;
            c->weights = copy_part(s, &s->weights, ranges[i], numel);
            c->exp_avg = copy_part(s, &s->exp_avg, ranges[i], numel);
            c->exp_avg_sq = copy_part(s, &s->exp_avg_sq, ranges[i], numel);
        }
        assert_int_equal(total, 6 * l.table.flat_numel);
        save_ok(&copy, stage + 1, dir);
        struct layout_spec whole = one_rank(&spec.model, DTYPE_F32, true);
        load_equals(&whole, dir, 3, "copies");
        for (int32_t i = 0; i < l.num_ranks; i++) {
            free(copy.ranks[i].state.weights.data);
            free(copy.ranks[i].state.exp_avg.data);
            free(copy.ranks[i].state.exp_avg_sq.data);
        }
        layout_free(&l);
    }
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
    save_ok(whole, ++step, dir);
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
    uint64_t first = first_seed();
    for (int i = 0; i < effort(200, 24, 8); i++) {
        uint64_t seed = first + (uint64_t)i;
        struct layout_spec spec = layout_draw(&models[seed % NUM_MODELS], seed);
        struct layout_spec one = one_rank(&spec.model, spec.dtype, false);
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
    for (size_t i = 0; i < NUM_MODELS; i++) {
        struct layout_spec one = one_rank(&models[i], DTYPE_F32, true);
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
        save_ok(&whole, (int64_t)(2 * i + 1), dir);
        export_ok(&whole, dir, out_a);
        save_ok(&l, (int64_t)(2 * i + 2), dir);
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
                fail_msg("%s: %s", models[i].family, wrong);
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
            one_rank(&(struct layout_model){families[i], 0, 0, 0}, DTYPE_F32, false);
        struct layout l;
        struct error err = {0};
        char dir[256], out[128], path[300];
        struct st_file *file;
        ModelConfig *config;
        spec.tensor = 2;
        layout_new(&l, &spec);
        layout_fill(&l, 1);
        save_ok(&l, (int64_t)i + 1, dir);
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
        EACH(what_any_layout_saved_any_other_loads),
        EACH(a_checkpoint_holds_each_tensor_whole_in_one_file),
        EACH(a_checkpoint_of_the_first_version_loads),
        EACH(damage_is_found_by_one_of_the_readers),
        EACH(all_ranks_write_one_file_at_the_same_time),
        EACH(copies_of_what_is_owned_save_the_same),
        EACH(no_layout_changes_a_draw),
        EACH(the_export_of_any_layout_is_that_of_one_rank),
        EACH(a_rank_reads_what_it_needs),
        EACH(an_export_has_hugging_faces_names_and_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
