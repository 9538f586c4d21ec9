/* Saves, sweeps and exports that are killed, or fail, at every call that changes the disk. The
 * linker hands those calls to us (--wrap): a child counts them and kills itself at the n-th, or the
 * n-th says that the disk is full; a write in trouble leaves half of its bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/ckpt/ckpt.h"
#include "tests/effort.h"
#include "tests/unit/ckpt_fixture.h"
#include "tests/unit/ckpt_layout.h"

static char root[64];

/* ---- trouble on time ---------------------------------------------------------------------------
 */

static int64_t calls_left = -1; /* until the trouble; -1: never */
static bool dies;               /* else the call fails, as on a full disk */

/* True: the call has to fail. */
static bool trouble(void)
{
    if (calls_left < 0 || calls_left-- != 0) {
        return false;
    }
    if (dies) {
        raise(SIGKILL);
    }
    errno = ENOSPC;
    return true;
}

ssize_t __real_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len)
{
    if (calls_left == 0 && __real_write(fd, data, len / 2) < 0) {
        return -1;
    }
    return trouble() ? -1 : __real_write(fd, data, len);
}

/* What a killed process wrote is in the page cache: nothing to wait for. */
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    (void)fd;
    return trouble() ? -1 : 0;
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    bool fails = trouble();
    int rc = __real_close(fd);
    return fails ? -1 : rc;
}

#define WRAP(name, params, args)                                                                   \
    int __real_##name params;                                                                      \
    int __wrap_##name params;                                                                      \
    int __wrap_##name params                                                                       \
    {                                                                                              \
        return trouble() ? -1 : __real_##name args;                                                \
    }

ssize_t __real_pwrite(int fd, const void *data, size_t len, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at)
{
    if (calls_left == 0 && __real_pwrite(fd, data, len / 2, at) < 0) {
        return -1;
    }
    return trouble() ? -1 : __real_pwrite(fd, data, len, at);
}

WRAP(ftruncate, (int fd, off_t size), (fd, size))
WRAP(rename, (const char *from, const char *to), (from, to))
WRAP(renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
     (a, from, b, to, flags))
WRAP(mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(unlink, (const char *path), (path))
WRAP(remove, (const char *path), (path))

/* Runs act in a child that dies at its n-th call; true if it was through before. */
static bool runs_through(int64_t n, void (*act)(const struct fixture *), const struct fixture *f)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dies = true;
        calls_left = n;
        act(f);
        calls_left = -1;
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status)) {
        assert_int_equal(WEXITSTATUS(status), 0);
        return true;
    }
    assert_int_equal(WTERMSIG(status), SIGKILL);
    return false;
}

/* ---- saves -------------------------------------------------------------------------------------
 */

static int try_save(const struct fixture *f, int64_t step, int32_t attempt, struct error *err)
{
    struct ckpt_meta meta = fixture_meta(step, attempt);
    char dir[256];
    int64_t bytes;
    for (int32_t w = 0; w < 3; w++) {
        if (fixture_save_part(root, f, &meta, w, 3, err) != 0) {
            return -1;
        }
    }
    return ckpt_commit(root, &meta, 3, dir, sizeof dir, &bytes, err);
}

static void save(const struct fixture *f, int64_t step, int32_t attempt)
{
    if (try_save(f, step, attempt, NULL) != 0) {
        _exit(1);
    }
}

static void save_step_20(const struct fixture *f)
{
    save(f, 20, 1);
}

static void sweep(const struct fixture *f)
{
    (void)f;
    if (ckpt_sweep(root, NULL) != 0) {
        _exit(1);
    }
}

/* The newest one is what it says it is; returns its step. */
static int64_t newest_loads(const struct fixture *at_10, const struct fixture *at_20)
{
    char dir[256];
    int64_t step;
    struct ckpt_meta meta;
    struct error err = {0};
    struct fixture got;
    assert_int_equal(ckpt_newest(root, dir, sizeof dir, &step, &err), 0);
    assert_true(step == 10 || step == 20);
    fixture_like(&got, at_10);
    if (ckpt_load(dir, &got.state, &meta, &err) != 0) {
        fail_msg("%s", err.text);
    }
    fixture_assert_equal(&got, step == 10 ? at_10 : at_20);
    fixture_free(&got);
    return step;
}

static void fresh_root(const struct fixture *at_10)
{
    snprintf(root, sizeof root, "/tmp/tandem-kill-XXXXXX");
    assert_non_null(mkdtemp(root));
    save(at_10, 10, 1);
}

/* At no moment does a save that was killed look complete; the one before stays good; the next
 * attempt at the same step succeeds. */
static void a_save_killed_anywhere_leaves_the_one_before(void **state)
{
    (void)state;
    struct fixture at_10, at_20;
    fixture_new(&at_10, DTYPE_F32, true, 3);
    fixture_new(&at_20, DTYPE_F32, true, 4);
    int64_t before = 0, after = 0;
    bool through = false;
    for (int64_t n = 0; !through; n++) {
        fresh_root(&at_10);
        through = runs_through(n, save_step_20, &at_20);
        int64_t step = newest_loads(&at_10, &at_20);
        before += step == 10;
        after += step == 20;
        assert_true(!through || step == 20);
        sweep(NULL);
        assert_int_equal(newest_loads(&at_10, &at_20), step);
        save(&at_20, 20, 2);
        assert_int_equal(newest_loads(&at_10, &at_20), 20);
        assert_int_equal(fs_remove_tree(root, NULL), 0);
    }
    /* The points of death lie on both sides of the one that makes it complete. */
    assert_true(before > 40);
    assert_true(after >= 2);
    fixture_free(&at_10);
    fixture_free(&at_20);
}

/* A full disk, wherever it shows: the save says so, leaves nothing that looks complete, and gives
 * the space back; with space again the next save succeeds. */
static void a_save_that_fails_anywhere_says_so_and_gives_the_space_back(void **state)
{
    (void)state;
    struct fixture at_10, at_20;
    struct error err;
    int failures = 0;
    fixture_new(&at_10, DTYPE_F32, true, 3);
    fixture_new(&at_20, DTYPE_F32, true, 4);
    for (int64_t n = 0;; n++) {
        fresh_root(&at_10);
        err = (struct error){0};
        dies = false;
        calls_left = n;
        int rc = try_save(&at_20, 20, 1, &err);
        bool reached = calls_left < 0;
        calls_left = -1;
        if (rc == 0) {
            assert_int_equal(newest_loads(&at_10, &at_20), 20);
        } else {
            char path[300];
            struct ckpt_meta meta = fixture_meta(20, 1);
            failures++;
            assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
            assert_non_null(strstr(err.text, "/tmp"));
            /* The last fsync of all may fail when COMPLETE is in place; then it is complete. */
            int64_t step = newest_loads(&at_10, &at_20);
            assert_int_equal(ckpt_abandon(root, &meta, &err), 0);
            assert_int_equal(newest_loads(&at_10, &at_20), step);
            snprintf(path, sizeof path, "%s/step-00000020-a1.tmp", root);
            assert_false(fs_exists(path));
            snprintf(path, sizeof path, "%s/step-00000020-a1", root);
            assert_true(fs_exists(path) == (step == 20));
            save(&at_20, 20, 2);
            assert_int_equal(newest_loads(&at_10, &at_20), 20);
        }
        assert_int_equal(fs_remove_tree(root, NULL), 0);
        if (!reached) {
            break;
        }
    }
    assert_true(failures > 30);
    fixture_free(&at_10);
    fixture_free(&at_20);
}

/* A sweep may die too: what it had begun to remove never counts again. */
static void a_sweep_killed_anywhere_loses_nothing(void **state)
{
    (void)state;
    struct fixture at_10, at_20;
    fixture_new(&at_10, DTYPE_F32, true, 3);
    fixture_new(&at_20, DTYPE_F32, true, 4);
    bool through = false;
    for (int64_t n = 0; !through; n++) {
        char path[300];
        struct ckpt_meta meta = fixture_meta(30, 1);
        fresh_root(&at_10);
        save_step_20(&at_20);
        save(&at_20, 25, 1);
        snprintf(path, sizeof path, "%s/step-00000025-a1/COMPLETE", root);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(fixture_save_part(root, &at_20, &meta, 0, 2, NULL), 0);
        through = runs_through(n, sweep, NULL);
        assert_int_equal(newest_loads(&at_10, &at_20), 20);
        assert_int_equal(fs_remove_tree(root, NULL), 0);
        assert_true(n < 100);
    }
    fixture_free(&at_10);
    fixture_free(&at_20);
}

/* ---- several writers of one file ---------------------------------------------------------------
 */

/* Two tensor ranks, each state shared out over two: nearly every file is written by all four. */
static const struct layout_spec shared_spec = {.model = {"llama-tied", 2, 1, 5},
                                               .dtype = DTYPE_F32,
                                               .moments = true,
                                               .tensor = 2,
                                               .shards = 2,
                                               .replicas = 1,
                                               .zero_stage = 3,
                                               .num_buckets = 2,
                                               .cuts = 3};
static struct layout shared_10, shared_20; /* as they are at those steps */

static int try_shared(const struct layout *l, int64_t step, int32_t attempt, struct error *err)
{
    struct ckpt_meta meta = fixture_meta(step, attempt);
    char dir[256];
    return layout_save(l, root, &meta, dir, sizeof dir, err);
}

static void save_shared(const struct layout *l, int64_t step, int32_t attempt)
{
    struct error err = {0};
    if (try_shared(l, step, attempt, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
}

static void save_shared_20(const struct fixture *f)
{
    (void)f;
    save_shared(&shared_20, 20, 1);
}

static int64_t newest_shared_loads(void)
{
    char dir[256];
    int64_t step;
    struct ckpt_meta meta;
    struct error err = {0};
    struct layout got;
    struct layout_spec other = shared_spec;
    other.tensor = other.shards = 1;
    other.zero_stage = 0;
    assert_int_equal(ckpt_newest(root, dir, sizeof dir, &step, &err), 0);
    assert_true(step == 10 || step == 20);
    layout_new(&got, &other);
    if (layout_load(&got, dir, &meta, &err) != 0) {
        fail_msg("%s", err.text);
    }
    const char *wrong = layout_differs(&got, (uint64_t)step, false);
    if (wrong) {
        fail_msg("step %d: %s", (int)step, wrong);
    }
    layout_free(&got);
    return step;
}

static void fresh_shared_root(void)
{
    snprintf(root, sizeof root, "/tmp/tandem-kill-XXXXXX");
    assert_non_null(mkdtemp(root));
    save_shared(&shared_10, 10, 1);
}

/* How many calls one save makes. */
static int64_t shared_begin(void)
{
    layout_new(&shared_10, &shared_spec);
    layout_new(&shared_20, &shared_spec);
    layout_fill(&shared_10, 10);
    layout_fill(&shared_20, 20);
    fresh_shared_root();
    dies = false;
    calls_left = INT64_MAX;
    save_shared(&shared_20, 20, 1);
    int64_t num = INT64_MAX - calls_left;
    calls_left = -1;
    assert_int_equal(newest_shared_loads(), 20);
    assert_int_equal(fs_remove_tree(root, NULL), 0);
    return num;
}

static void shared_end(void)
{
    layout_free(&shared_10);
    layout_free(&shared_20);
}

/* The next point of trouble: all of those from the commit on, some of the many writes before. */
static int64_t next_point(int64_t n, int64_t num)
{
    int64_t dense = num - effort(60, 40, 30), next = n + effort(1, 17, 67);
    return n >= dense ? n + 1 : next < dense ? next : dense;
}

/* As for one writer a file: whoever dies, wherever, the one before or the new one is whole. */
static void a_shared_save_killed_anywhere_leaves_the_one_before(void **state)
{
    (void)state;
    int64_t num = shared_begin(), before = 0, after = 0;
    for (int64_t n = 0; n < num; n = next_point(n, num)) {
        fresh_shared_root();
        assert_false(runs_through(n, save_shared_20, NULL));
        int64_t step = newest_shared_loads();
        before += step == 10;
        after += step == 20;
        sweep(NULL);
        assert_int_equal(newest_shared_loads(), step);
        save_shared(&shared_20, 20, 2);
        assert_int_equal(newest_shared_loads(), 20);
        assert_int_equal(fs_remove_tree(root, NULL), 0);
    }
    assert_true(before > 20);
    assert_true(after >= 2);
    shared_end();
}

/* One rank's failure is the save's: nothing looks complete, and the space comes back. */
static void a_shared_save_that_fails_anywhere_gives_the_space_back(void **state)
{
    (void)state;
    int64_t num = shared_begin();
    int failures = 0;
    for (int64_t n = 0; n < num; n = next_point(n, num)) {
        struct error err = {0};
        struct ckpt_meta meta = fixture_meta(20, 1);
        char path[300];
        fresh_shared_root();
        calls_left = n;
        int rc = try_shared(&shared_20, 20, 1, &err);
        calls_left = -1;
        int64_t step = newest_shared_loads();
        if (rc != 0) {
            failures++;
            assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
            assert_int_equal(ckpt_abandon(root, &meta, &err), 0);
            snprintf(path, sizeof path, "%s/step-00000020-a1.tmp", root);
            assert_false(fs_exists(path));
            assert_int_equal(newest_shared_loads(), step);
        }
        save_shared(&shared_20, 20, 2);
        assert_int_equal(newest_shared_loads(), 20);
        assert_int_equal(fs_remove_tree(root, NULL), 0);
    }
    assert_true(failures > 20);
    shared_end();
}

/* ---- exports -----------------------------------------------------------------------------------
 */

/* Step 1 is the older export's checkpoint, step 2 the newer one's. */
static void export_step(const struct fixture *f, int64_t step)
{
    ModelConfig config = MODEL_CONFIG__INIT;
    char out[128], from[128];
    config.model_type = (char[]){"llama"};
    config.hidden_size = 12;
    snprintf(out, sizeof out, "%s/export", root);
    snprintf(from, sizeof from, "%s/ckpt/step-%08lld-a1", root, (long long)step);
    if (ckpt_export_hf_shards(out, from, &f->table, &config, 2000, NULL) != 0) {
        _exit(1);
    }
}

static void export_newer(const struct fixture *f)
{
    export_step(f, 2);
}

static bool same_weights(const struct fixture *a, const struct fixture *b)
{
    return memcmp(a->state.weights.data, b->state.weights.data, a->bytes) == 0;
}

/* A reader of the export finds the old one or the new one, whole, or nothing; and the next export
 * isn't troubled by what the killed one left. */
static void an_export_killed_anywhere_is_whole_or_absent(void **state)
{
    (void)state;
    struct fixture older, newer, got;
    char out[128], parent[128], dir[256];
    struct error err = {0};
    fixture_new(&older, DTYPE_F32, false, 3);
    fixture_new(&newer, DTYPE_F32, false, 4);
    fixture_like(&got, &older);
    for (int with_older = 0; with_older < 2; with_older++) {
        bool through = false;
        for (int64_t n = 0; !through; n++) {
            snprintf(root, sizeof root, "/tmp/tandem-kill-XXXXXX");
            assert_non_null(mkdtemp(root));
            snprintf(out, sizeof out, "%s/export", root);
            snprintf(parent, sizeof parent, "%s/ckpt", root);
            fixture_checkpoint(parent, &older, 1, dir);
            fixture_checkpoint(parent, &newer, 2, dir);
            if (with_older) {
                export_step(&older, 1);
            }
            through = runs_through(n, export_newer, &newer);
            if (fs_exists(out)) {
                if (ckpt_load_hf(NULL, out, &got.state, &err) != 0) {
                    fail_msg("%s", err.text);
                }
                assert_true(same_weights(&got, &newer) ||
                            (with_older && same_weights(&got, &older)));
            } else {
                assert_false(through);
            }
            export_newer(&newer);
            assert_int_equal(ckpt_load_hf(NULL, out, &got.state, &err), 0);
            assert_true(same_weights(&got, &newer));
            char left[140];
            snprintf(left, sizeof left, "%s.tmp", out);
            assert_false(fs_exists(left));
            snprintf(left, sizeof left, "%s.old", out);
            assert_false(fs_exists(left));
            assert_int_equal(fs_remove_tree(root, NULL), 0);
        }
    }
    fixture_free(&older);
    fixture_free(&newer);
    fixture_free(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_save_killed_anywhere_leaves_the_one_before),
        cmocka_unit_test(a_save_that_fails_anywhere_says_so_and_gives_the_space_back),
        cmocka_unit_test(a_sweep_killed_anywhere_loses_nothing),
        cmocka_unit_test(a_shared_save_killed_anywhere_leaves_the_one_before),
        cmocka_unit_test(a_shared_save_that_fails_anywhere_gives_the_space_back),
        cmocka_unit_test(an_export_killed_anywhere_is_whole_or_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
