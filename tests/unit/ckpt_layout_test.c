/* Checkpoints between layouts (plan/pieces.h, runtime/ckpt/ckpt.h): what any ranks saved any other
 * ranks load, key by key and bit by bit. TANDEM_SEED=n runs from another seed. */
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

static int remove_root(void **state)
{
    (void)state;
    return fs_remove_tree(root, NULL);
}

/* ---- from any layout to any other --------------------------------------------------------------
 */

/* TRAINING 5, fault 15: weights and both moments, key by key. Every element of every tensor comes
 * back on every rank that holds it, and nothing is written where padding lies. */
static void what_any_layout_saved_any_other_loads(void **state)
{
    (void)state;
    uint64_t first = layout_first_seed();
    int pairs = effort(4000, 160, 24);
    for (int i = 0; i < pairs; i++) {
        uint64_t seed = first + (uint64_t)i;
        const struct layout_model *model = &layout_models[seed % LAYOUT_NUM_MODELS];
        struct layout_spec a = layout_draw(model, 2 * seed), b = layout_draw(model, 2 * seed + 1);
        struct layout l;
        char dir[256], text[300], from[330];
        a.dtype = b.dtype = seed % 3 == 0 ? DTYPE_F64 : DTYPE_F32;
        a.moments = b.moments = seed % 5 != 0;
        layout_text(&a, text, sizeof text);
        snprintf(from, sizeof from, "seed %" PRIu64 ": %s", seed, text);
        layout_new(&l, &a);
        layout_fill(&l, seed);
        layout_save_ok(&l, root, i + 1, dir);
        layout_load_equals(&b, dir, seed, from);
        if (i % 8 == 0) {
            struct layout_spec whole = layout_one_rank(model, a.dtype, a.moments);
            layout_load_equals(&whole, dir, seed, from);
            layout_load_equals(&a, dir, seed, from);
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
    layout_save_ok(&l, root, 1, dir);
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
    layout_save_ok(&l, root, 1, dir);
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
        struct layout_spec spec = {.model = layout_models[round % (int)LAYOUT_NUM_MODELS],
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
        struct layout_spec whole = layout_one_rank(&spec.model, DTYPE_F32, true);
        layout_load_equals(&whole, dir, 5, "threads");
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
        struct layout_spec spec = {.model = layout_models[0],
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
        layout_save_ok(&copy, root, stage + 1, dir);
        struct layout_spec whole = layout_one_rank(&spec.model, DTYPE_F32, true);
        layout_load_equals(&whole, dir, 3, "copies");
        for (int32_t i = 0; i < l.num_ranks; i++) {
            free(copy.ranks[i].state.weights.data);
            free(copy.ranks[i].state.exp_avg.data);
            free(copy.ranks[i].state.exp_avg_sq.data);
        }
        layout_free(&l);
    }
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
