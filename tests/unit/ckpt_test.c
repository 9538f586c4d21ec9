/* runtime/ckpt/ckpt.h: what was saved comes back, bit by bit, from any number of writers; what is
 * damaged or unfinished is found out and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/ckpt/ckpt.h"
#include "tests/unit/ckpt_fixture.h"

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/tandem-ckpt-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return fs_remove_tree(root, NULL);
}

/* ---- saving and loading ------------------------------------------------------------------------
 */

static void save_ok(struct fixture *f, int64_t step, int32_t attempt, int32_t writers,
                    char dir[256])
{
    struct ckpt_meta meta = fixture_meta(step, attempt);
    struct error err = {0};
    int64_t bytes;
    for (int32_t w = writers; w-- > 0;) {
        if (fixture_save_part(root, f, &meta, w, writers, &err) != 0) {
            fail_msg("%s", err.text);
        }
    }
    if (ckpt_commit(root, &meta, writers, dir, 256, &bytes, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_true(bytes > 0);
}

static void load_equals(const char *dir, const struct fixture *f, int64_t step)
{
    struct fixture got;
    struct ckpt_meta meta;
    struct error err = {0};
    fixture_like(&got, f);
    if (ckpt_load(dir, &got.state, &meta, &err) != 0) {
        fail_msg("%s", err.text);
    }
    fixture_assert_equal(&got, f);
    assert_int_equal(meta.step, step);
    assert_int_equal(meta.consumed_samples, step * 12);
    assert_true(meta.seed == 0xFEDCBA9876543210u);
    assert_true(meta.loss == 1.0 / 3);
    fixture_free(&got);
}

static void load_fails(const char *dir, const struct fixture *f, enum error_code code,
                       const char *words)
{
    struct ckpt_meta meta;
    struct error err = {0};
    if (ckpt_load(dir, &f->state, &meta, &err) == 0) {
        fail_msg("was loaded, though: %s", words);
    }
    if (err.code != code || !strstr(err.text, words)) {
        fail_msg("says \"%s\" (%d), wanted \"%s\" (%d)", err.text, err.code, words, code);
    }
}

/* More writers than tensors, odd counts, both precisions, with and without moments. */
static void what_any_number_of_writers_saved_loads_bit_by_bit(void **state)
{
    (void)state;
    static const int32_t writers[] = {1, 2, 3, 5, 40};
    int32_t attempt = 1;
    for (int kind = 0; kind < 4; kind++) {
        struct fixture f;
        fixture_new(&f, kind & 1 ? DTYPE_F64 : DTYPE_F32, kind & 2, 17);
        for (size_t i = 0; i < sizeof writers / sizeof writers[0]; i++) {
            char dir[256];
            save_ok(&f, 100, attempt++, writers[i], dir);
            load_equals(dir, &f, 100);
        }
        fixture_free(&f);
    }
}

/* A bf16 run saves its masters and moments in full, and says what it is: nothing is rounded, under
 * bf16 again or under fp32; nor where an fp32 run is taken up in bf16. */
static void a_bf16_run_saves_its_masters_and_says_so(void **state)
{
    (void)state;
    static const struct {
        bool bf16;
        enum dtype dtype, precision;
        const char *word;
    } cases[] = {{true, DTYPE_F32, DTYPE_BF16, "\"precision\": \"bf16\""},
                 {false, DTYPE_F32, DTYPE_F32, "\"precision\": \"fp32\""},
                 {false, DTYPE_F64, DTYPE_F64, "\"precision\": \"fp64\""}};
    for (int32_t i = 0; i < 3; i++) {
        struct fixture f, got;
        struct ckpt_meta meta;
        struct error err = {0};
        char dir[256], path[300], *text;
        size_t len;
        fixture_new(&f, cases[i].dtype, true, 31);
        f.state.bf16 = cases[i].bf16;
        save_ok(&f, 300, i + 1, 3, dir);
        snprintf(path, sizeof path, "%s/manifest.json", dir);
        assert_int_equal(fs_read_file(path, 1 << 20, &text, &len, &err), 0);
        assert_non_null(strstr(text, cases[i].word));
        free(text);
        fixture_like(&got, &f);
        got.state.bf16 = i == 1; /* a bf16 checkpoint in fp32, an fp32 one in bf16 */
        assert_int_equal(ckpt_load(dir, &got.state, &meta, &err), 0);
        assert_int_equal(meta.precision, cases[i].precision);
        fixture_assert_equal(&got, &f);
        fixture_free(&f);
        fixture_free(&got);
    }
}

/* The bytes of a checkpoint are split between its writers, not its names. */
static void writers_share_the_bytes(void **state)
{
    (void)state;
    struct fixture f;
    char dir[256], path[300];
    fixture_new(&f, DTYPE_F32, true, 5);
    save_ok(&f, 7, 1, 3, dir);
    int64_t total = 0, most = 0, largest = 0;
    for (int w = 0; w < 3; w++) {
        struct stat st;
        snprintf(path, sizeof path, "%s/weights-%d.safetensors", dir, w);
        assert_int_equal(stat(path, &st), 0);
        total += (int64_t)st.st_size;
        most = (int64_t)st.st_size > most ? (int64_t)st.st_size : most;
    }
    for (int32_t i = 0; i < f.table.num_params; i++) {
        int64_t bytes = f.table.params[i].numel * 4;
        largest = bytes > largest ? bytes : largest;
    }
    assert_true(most <= total / 3 + largest);
    fixture_free(&f);
}

/* A reader who only wants weights takes them without the moments; one who wants moments from a
 * checkpoint without is told. */
static void moments_are_optional_for_the_reader_only(void **state)
{
    (void)state;
    struct fixture f;
    char dir[256];
    struct ckpt_meta meta;
    struct error err = {0};
    fixture_new(&f, DTYPE_F32, true, 3);
    save_ok(&f, 5, 1, 2, dir);
    struct fixture got;
    fixture_like(&got, &f);
    struct ckpt_state weights_only = got.state;
    weights_only.exp_avg.data = weights_only.exp_avg_sq.data = NULL;
    assert_int_equal(ckpt_load(dir, &weights_only, &meta, &err), 0);
    assert_memory_equal(got.state.weights.data, f.state.weights.data, f.bytes);
    fixture_free(&got);
    struct ckpt_state with_moments = f.state;
    f.state.exp_avg.data = f.state.exp_avg_sq.data = NULL;
    save_ok(&f, 5, 2, 2, dir);
    f.state = with_moments;
    load_fails(dir, &f, ERR_DATA_LOSS, ".exp_avg\" is missing");
    fixture_free(&f);
}

static void tensors_that_are_missing_or_foreign_are_named(void **state)
{
    (void)state;
    struct fixture f;
    char dir[256];
    fixture_new(&f, DTYPE_F32, true, 3);
    save_ok(&f, 5, 1, 2, dir);
    struct param *p = &f.table.params[2];
    char keep[PARAM_NAME_MAX];
    memcpy(keep, p->name, sizeof keep);
    snprintf(p->name, sizeof p->name, "model.other.weight");
    load_fails(dir, &f, ERR_DATA_LOSS, "is not one of the model's parameters");
    char extra[PARAM_NAME_MAX + 64];
    snprintf(extra, sizeof extra, "tensor \"%s", keep);
    load_fails(dir, &f, ERR_DATA_LOSS, extra);
    memcpy(p->name, keep, sizeof keep);
    int64_t row = p->numel / p->shape[0]++;
    p->numel += row;
    load_fails(dir, &f, ERR_INVALID_ARGUMENT, "the model wants");
    p->shape[0]--;
    p->numel -= row;
    /* One parameter more than was saved. */
    struct param_table bigger = f.table;
    bigger.params = calloc((size_t)f.table.num_params + 1, sizeof *bigger.params);
    assert_non_null(bigger.params);
    memcpy(bigger.params, f.table.params, (size_t)f.table.num_params * sizeof *bigger.params);
    bigger.params[bigger.num_params] = bigger.params[0];
    snprintf(bigger.params[bigger.num_params++].name, PARAM_NAME_MAX, "model.new.weight");
    f.state.table = &bigger;
    load_fails(dir, &f, ERR_DATA_LOSS, "tensor \"model.new.weight\" is missing");
    free(bigger.params);
    fixture_free(&f);
}

/* ---- damage ------------------------------------------------------------------------------------
 */

static void flip_byte(const char *path, long at)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, at, at < 0 ? SEEK_END : SEEK_SET);
    int c = fgetc(file);
    fseek(file, -1, SEEK_CUR);
    fputc(c ^ 0x10, file);
    assert_int_equal(fclose(file), 0);
}

/* One bit anywhere in any file is found, and the message names the file. */
static void a_damaged_byte_is_found_by_its_hash(void **state)
{
    (void)state;
    static const char *const files[] = {"weights-0.safetensors", "weights-1.safetensors",
                                        "optim-0.safetensors",   "optim-1.safetensors",
                                        "manifest.json",         "COMPLETE"};
    struct fixture f;
    char dir[256], path[300];
    struct ckpt_meta meta;
    struct error err = {0};
    fixture_new(&f, DTYPE_F32, true, 3);
    save_ok(&f, 9, 1, 2, dir);
    assert_int_equal(ckpt_verify(dir, &meta, &err), 0);
    assert_int_equal(meta.step, 9);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        for (long at = 3; at >= -5; at -= 8) {
            snprintf(path, sizeof path, "%s/%s", dir, files[i]);
            flip_byte(path, at);
            load_fails(dir, &f, ERR_DATA_LOSS, files[i]);
            assert_int_equal(ckpt_verify(dir, &meta, &err), -1);
            assert_non_null(strstr(err.text, files[i]));
            flip_byte(path, at);
        }
    }
    load_equals(dir, &f, 9);
    fixture_free(&f);
}

static void a_file_that_is_cut_or_gone_is_named(void **state)
{
    (void)state;
    struct fixture f;
    char dir[256], path[300];
    fixture_new(&f, DTYPE_F32, true, 3);
    save_ok(&f, 9, 1, 2, dir);
    snprintf(path, sizeof path, "%s/optim-1.safetensors", dir);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(truncate(path, st.st_size - 1), 0);
    load_fails(dir, &f, ERR_DATA_LOSS, "optim-1.safetensors: has ");
    assert_int_equal(unlink(path), 0);
    load_fails(dir, &f, ERR_NOT_FOUND, "optim-1.safetensors");
    fixture_free(&f);
}

/* A file that something else has taken the place of is damage like any other: whoever resumes goes
 * on from an older checkpoint. None of it hangs. */
static void what_is_no_file_any_more_is_damage(void **state)
{
    (void)state;
    static const char *const files[] = {"weights-0.safetensors", "manifest.json", "COMPLETE"};
    struct fixture f;
    char dir[256], path[300];
    fixture_new(&f, DTYPE_F32, true, 3);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        save_ok(&f, 9, (int32_t)i + 1, 2, dir);
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkdir(path, 0700), 0);
        load_fails(dir, &f, ERR_DATA_LOSS, files[i]);
        assert_int_equal(rmdir(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        load_fails(dir, &f, ERR_DATA_LOSS, files[i]);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink("/dev/zero", path), 0);
        load_fails(dir, &f, ERR_DATA_LOSS, files[i]);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink(files[i], path), 0);
        load_fails(dir, &f, ERR_DATA_LOSS, files[i]);
    }
    fixture_free(&f);
}

/* ---- which one counts --------------------------------------------------------------------------
 */

static void newest_is(const char *want, int64_t want_step)
{
    char dir[256];
    int64_t step = -1;
    struct error err = {0};
    if (ckpt_newest(root, dir, sizeof dir, &step, &err) != 0) {
        fail_msg("%s", err.text);
    }
    const char *slash = strrchr(dir, '/');
    assert_string_equal(slash ? slash + 1 : dir, want);
    assert_int_equal(step, want_step);
}

/* Highest step, then highest attempt, by number and not by letter; only what is complete; names
 * that aren't ours are nobody's checkpoint. */
static void the_newest_complete_one_is_picked(void **state)
{
    (void)state;
    struct fixture f;
    char dir[256], path[300];
    fixture_new(&f, DTYPE_F32, false, 3);
    newest_is("", 0);
    save_ok(&f, 90, 9, 1, dir);
    save_ok(&f, 100, 9, 1, dir);
    save_ok(&f, 100, 10, 2, dir);
    save_ok(&f, 20, 11, 1, dir);
    newest_is("step-00000100-a10", 100);
    save_ok(&f, 123456789, 1, 1, dir);
    newest_is("step-123456789-a1", 123456789);
    snprintf(path, sizeof path, "%s/COMPLETE", dir);
    assert_int_equal(unlink(path), 0);
    newest_is("step-00000100-a10", 100);
    load_fails(dir, &f, ERR_NOT_FOUND, "is not a complete checkpoint");
    static const char *const foreign[] = {
        "step-00000999-a1.tmp", "step-00000999-a1.old", "step-999-a1", "step-00000999-a01",
        "step--0000999-a1",     "step-00000999-a",      "latest"};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", root, foreign[i]);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path, sizeof path, "%s/%s/COMPLETE", root, foreign[i]);
        assert_int_equal(fs_write_atomic(path, "x", 1, 0600, NULL), 0);
    }
    newest_is("step-00000100-a10", 100);
    fixture_free(&f);
}

/* One that a reader found damaged is passed over from then on, and kept for people to look at. */
static void a_damaged_checkpoint_is_passed_over_for_an_older_one(void **state)
{
    (void)state;
    struct fixture f;
    char dir[256], path[300];
    fixture_new(&f, DTYPE_F32, true, 3);
    save_ok(&f, 10, 1, 2, dir);
    save_ok(&f, 20, 1, 2, dir);
    assert_int_equal(ckpt_mark_damaged(dir, "a bit fell over", NULL), 0);
    newest_is("step-00000010-a1", 10);
    assert_int_equal(ckpt_sweep(root, NULL), 0);
    snprintf(path, sizeof path, "%s/DAMAGED", dir);
    assert_true(fs_exists(path));
    assert_int_equal(unlink(path), 0);
    newest_is("step-00000020-a1", 20);
    fixture_free(&f);
}

/* What killed saves left goes; what is complete, and what isn't ours, stays. */
static void the_sweep_takes_the_unfinished_only(void **state)
{
    (void)state;
    struct fixture f;
    char dir[256], path[300];
    struct error err = {0};
    assert_int_equal(ckpt_sweep("/tmp/tandem-no-such-folder", &err), 0);
    fixture_new(&f, DTYPE_F32, true, 3);
    save_ok(&f, 10, 1, 2, dir);
    struct ckpt_meta meta = fixture_meta(20, 1);
    assert_int_equal(fixture_save_part(root, &f, &meta, 0, 2, &err), 0);
    save_ok(&f, 30, 1, 2, dir);
    snprintf(path, sizeof path, "%s/COMPLETE", dir);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/notes", root);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(ckpt_sweep(root, &err), 0);
    int left = 0;
    DIR *list = opendir(root);
    assert_non_null(list);
    for (const struct dirent *e; (e = readdir(list));) {
        left += e->d_name[0] != '.';
    }
    closedir(list);
    assert_int_equal(left, 2);
    assert_true(fs_exists(path));
    newest_is("step-00000010-a1", 10);
    fixture_free(&f);
}

/* ---- the commit --------------------------------------------------------------------------------
 */

static void commit_fails(const struct ckpt_meta *meta, int32_t writers, enum error_code code,
                         const char *words)
{
    char dir[256];
    int64_t bytes;
    struct error err = {0};
    if (ckpt_commit(root, meta, writers, dir, sizeof dir, &bytes, &err) == 0) {
        fail_msg("was committed, though: %s", words);
    }
    if (err.code != code || !strstr(err.text, words)) {
        fail_msg("says \"%s\" (%d), wanted \"%s\"", err.text, err.code, words);
    }
}

/* A commit believes only what the writers' notes say of this very save. */
static void a_commit_needs_every_writers_part(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    char path[300];
    struct ckpt_meta meta = fixture_meta(40, 1);
    fixture_new(&f, DTYPE_F32, true, 3);
    commit_fails(&meta, 2, ERR_NOT_FOUND, "step-00000040-a1.tmp");
    assert_int_equal(fixture_save_part(root, &f, &meta, 0, 2, &err), 0);
    commit_fails(&meta, 2, ERR_NOT_FOUND, "part-1.json");
    assert_int_equal(fixture_save_part(root, &f, &meta, 1, 3, &err), 0);
    commit_fails(&meta, 2, ERR_DATA_LOSS, "part-1.json: is of another save");
    assert_int_equal(fixture_save_part(root, &f, &meta, 1, 2, &err), 0);
    snprintf(path, sizeof path, "%s/step-00000040-a1.tmp/weights-1.safetensors", root);
    assert_int_equal(truncate(path, 100), 0);
    commit_fails(&meta, 2, ERR_DATA_LOSS, "weights-1.safetensors: has 100 bytes");
    newest_is("", 0);
    assert_int_equal(ckpt_abandon(root, &meta, &err), 0);
    snprintf(path, sizeof path, "%s/step-00000040-a1.tmp", root);
    assert_false(fs_exists(path));
    char dir[256];
    save_ok(&f, 40, 1, 2, dir);
    assert_int_equal(fixture_save_part(root, &f, &meta, 0, 1, &err), 0);
    commit_fails(&meta, 1, ERR_ALREADY_EXISTS, "is there already");
    assert_int_equal(ckpt_abandon(root, &meta, &err), 0);
    load_equals(dir, &f, 40);
    fixture_free(&f);
}

static void a_loss_that_is_no_number_is_left_out(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    char dir[256];
    int64_t bytes;
    struct ckpt_meta meta = fixture_meta(1, 1), got;
    meta.loss = INFINITY;
    fixture_new(&f, DTYPE_F32, false, 3);
    assert_int_equal(fixture_save_part(root, &f, &meta, 0, 1, &err), 0);
    assert_int_equal(ckpt_commit(root, &meta, 1, dir, sizeof dir, &bytes, &err), 0);
    assert_int_equal(ckpt_load(dir, &f.state, &got, &err), 0);
    assert_true(isnan(got.loss));
    fixture_free(&f);
}

static void a_save_that_cannot_write_says_where_and_leaves_no_part(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {0};
    struct ckpt_meta meta = fixture_meta(1, 1);
    char path[300];
    fixture_new(&f, DTYPE_F32, true, 3);
    snprintf(path, sizeof path, "%s/step-00000001-a1.tmp/optim-0.safetensors/x", root);
    assert_int_equal(fs_mkdirs(path, 0700, &err), 0);
    assert_int_equal(fixture_save_part(root, &f, &meta, 0, 1, &err), -1);
    assert_non_null(strstr(err.text, "optim-0.safetensors"));
    snprintf(path, sizeof path, "%s/step-00000001-a1.tmp/weights-0.safetensors", root);
    assert_false(fs_exists(path));
    assert_int_equal(fixture_save_part("/proc/nowhere", &f, &meta, 0, 1, &err), -1);
    fixture_free(&f);
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        EACH(what_any_number_of_writers_saved_loads_bit_by_bit),
        EACH(a_bf16_run_saves_its_masters_and_says_so),
        EACH(writers_share_the_bytes),
        EACH(moments_are_optional_for_the_reader_only),
        EACH(tensors_that_are_missing_or_foreign_are_named),
        EACH(a_damaged_byte_is_found_by_its_hash),
        EACH(a_file_that_is_cut_or_gone_is_named),
        EACH(what_is_no_file_any_more_is_damage),
        EACH(the_newest_complete_one_is_picked),
        EACH(a_damaged_checkpoint_is_passed_over_for_an_older_one),
        EACH(the_sweep_takes_the_unfinished_only),
        EACH(a_commit_needs_every_writers_part),
        EACH(a_loss_that_is_no_number_is_left_out),
        EACH(a_save_that_cannot_write_says_where_and_leaves_no_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
