/* base/roots: a path is opened below the folders that are allowed, or refused in the same words
 * whatever lies there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/rng.h"
#include "base/roots.h"
#include "tests/deadline.h"
#include "tests/effort.h"

/* TMP/red, TMP/models: allowed, with files that hold "in". TMP/blue, TMP/redder, TMP/secret: not,
 * with files that hold "out". TMP/named -> TMP/real is a root that is a link. */
static char tmp[64];
static char red[128], models[128], named[128], slashed[128];
static const char *dirs[4];

static const char *in_tmp(const char *name)
{
    static char path[8][1024];
    static int at;
    at = (at + 1) % 8;
    snprintf(path[at], sizeof path[at], "%s/%s", tmp, name);
    return path[at];
}

static void put(const char *name, const char *text)
{
    struct error err = {0};
    if (fs_write_atomic(in_tmp(name), text, strlen(text), 0644, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void make_link(const char *target, const char *name)
{
    assert_int_equal(symlink(target, in_tmp(name)), 0);
}

static int setup(void **state)
{
    (void)state;
    snprintf(tmp, sizeof tmp, "/tmp/roots_test.XXXXXX");
    assert_non_null(mkdtemp(tmp));
    static const char *const folders[] = {"red/a/b", "models/llama", "blue", "redder", "real/deep"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        assert_int_equal(fs_mkdirs(in_tmp(folders[i]), 0755, NULL), 0);
    }
    put("red/x", "in");
    put("red/a/y", "in");
    put("red/a/b/z", "in");
    put("models/llama/w", "in");
    put("real/deep/v", "in");
    put("blue/s", "out");
    put("redder/s", "out");
    put("secret", "out");
    make_link("real", "named");
    snprintf(red, sizeof red, "%s/red", tmp);
    snprintf(models, sizeof models, "%s/models", tmp);
    snprintf(named, sizeof named, "%s/named", tmp);
    snprintf(slashed, sizeof slashed, "%s//models/./", tmp);
    dirs[0] = red;
    dirs[1] = slashed;
    dirs[2] = named;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(fs_remove_tree(tmp, NULL), 0);
    return 0;
}

static struct roots allowed(void)
{
    return (struct roots){.limited = true, .tenant = "red", .dirs = dirs, .num = 3};
}

static void expect_in_path(const char *path)
{
    struct roots r = allowed();
    struct error err = {0};
    char *text;
    size_t len;
    if (roots_read_file(&r, path, 100, &text, &len, &err) != 0) {
        fail_msg("%s: %s", path, err.text);
    }
    assert_string_equal(text, "in");
    free(text);
}

static void expect_in(const char *name)
{
    expect_in_path(in_tmp(name));
}

static void expect_error_path(const char *path, enum error_code code, const char *words)
{
    struct roots r = allowed();
    struct error err = {0};
    int fd = roots_open(&r, path, NULL, &err);
    if (fd >= 0) {
        close(fd);
        fail_msg("%s was opened", path);
    }
    if (err.code != code || !strstr(err.text, words)) {
        fail_msg("%s: %s: %s", path, error_code_name(err.code), err.text);
    }
}

/* Refused, in words that name the path that was asked for and what is allowed. */
static void expect_out(const char *name)
{
    char words[1024];
    snprintf(words, sizeof words, "%s: outside of what tenant red may read: %s, %s, %s",
             in_tmp(name), red, slashed, named);
    expect_error_path(in_tmp(name), ERR_PERMISSION_DENIED, words);
}

static void files_below_the_roots_are_opened(void **state)
{
    (void)state;
    expect_in("red/x");
    expect_in("red/a/b/z");
    expect_in("models/llama/w");
    expect_in("named/deep/v");
    expect_in("//red///a/.//y");
    expect_in("./models/./llama/w");
    expect_in("red/a/../x");
    expect_in("red/a/b/../../a/y");
}

/* A name that only begins like a root's is another folder; ".." leads out however it is written. */
static void what_lies_beside_a_root_is_refused(void **state)
{
    (void)state;
    expect_out("redder/s");
    expect_out("secret");
    expect_out("red/../secret");
    expect_out("red/a/../../blue/s");
    expect_out("red/a/b/../../../redder/s");
    expect_out("blue/../red/x");
    expect_out("..");
    expect_error_path("/", ERR_PERMISSION_DENIED, "outside of what");
    expect_error_path("", ERR_PERMISSION_DENIED, "outside of what");
    expect_error_path("red/x", ERR_PERMISSION_DENIED, "outside of what");
    expect_error_path("/etc/passwd", ERR_PERMISSION_DENIED, "outside of what");
    /* The folder by its own name isn't what the server's config allows. */
    expect_out("real/deep/v");
}

static void links_are_followed_as_far_as_they_stay_inside(void **state)
{
    (void)state;
    make_link("a/y", "red/relative");
    make_link("../../x", "red/a/b/up");
    make_link(in_tmp("red/a/b"), "red/absolute");
    make_link(in_tmp("models/llama"), "red/model");
    make_link("../models/llama/w", "red/aside");
    make_link("absolute/../../model/w", "red/chain");
    make_link(in_tmp("named/deep"), "models/far");
    expect_in("red/relative");
    expect_in("red/a/b/up");
    expect_in("red/absolute/z");
    expect_in("red/absolute/up");
    expect_in("red/model/w");
    expect_in("red/aside");
    expect_in("red/chain");
    expect_in("models/far/v");
}

/* No oracle: a link out is refused alike whether or not something is there. */
static void links_out_are_refused_alike_whatever_is_there(void **state)
{
    (void)state;
    make_link("../secret", "red/out");
    make_link("../nothing", "red/nothing");
    make_link(in_tmp("secret"), "red/out2");
    make_link("/nowhere/at/all", "red/nothing2");
    make_link(in_tmp("blue"), "red/folder");
    make_link("/proc/self/root", "red/root");
    make_link("folder/s", "red/two");
    make_link("../../../../../../../../../etc/passwd", "red/a/far");
    static const char *const names[] = {"red/out",        "red/nothing",  "red/out2",
                                        "red/nothing2",   "red/folder/s", "red/folder/none",
                                        "red/two",        "red/a/far",    "red/root/etc/passwd",
                                        "red/nothing2/x", "nothing"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        expect_out(names[i]);
    }
}

static void loops_and_odd_files_end(void **state)
{
    (void)state;
    make_link("loop2", "red/loop");
    make_link("loop", "red/loop2");
    make_link(in_tmp("models/ping"), "red/pong");
    make_link(in_tmp("red/pong"), "models/ping");
    assert_int_equal(mkfifo(in_tmp("red/fifo"), 0600), 0);
    expect_error_path(in_tmp("red/loop"), ERR_INVALID_ARGUMENT, "red/loop: ");
    expect_out("red/pong");
    expect_error_path(in_tmp("red/fifo"), ERR_INVALID_ARGUMENT, "not a regular file");
    expect_error_path(in_tmp("red/a"), ERR_INVALID_ARGUMENT, "not a regular file");
    expect_error_path(in_tmp("red/none"), ERR_NOT_FOUND, "No such file");
    expect_error_path(in_tmp("red/x/"), ERR_NOT_FOUND, "Not a directory");
    expect_error_path(in_tmp("red/x/y"), ERR_NOT_FOUND, "Not a directory");
}

/* /proc/self/fd/N and its like jump anywhere; they are no way below a root. */
static void magic_links_are_not_followed(void **state)
{
    (void)state;
    char path[64];
    const char *proc[] = {"/proc/self"};
    struct roots r = {.limited = true, .tenant = "red", .dirs = proc, .num = 1};
    struct error err;
    FILE *f = fopen(in_tmp("secret"), "r");
    assert_non_null(f);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(f));
    assert_int_equal(roots_open(&r, path, NULL, &err), -1);
    snprintf(path, sizeof path, "/proc/self/root/etc/passwd");
    assert_int_equal(roots_open(&r, path, NULL, &err), -1);
    fclose(f);
}

static void no_root_allows_nothing_and_no_limit_everything(void **state)
{
    (void)state;
    struct roots none = {.limited = true, .tenant = "red"}, all = {0};
    struct error err;
    assert_int_equal(roots_open(&none, in_tmp("red/x"), NULL, &err), -1);
    assert_int_equal(err.code, ERR_PERMISSION_DENIED);
    assert_non_null(strstr(err.text, "may read: nothing"));
    const char *slash[] = {"/"};
    struct roots top = {.limited = true, .tenant = "red", .dirs = slash, .num = 1};
    const struct roots *open_all[] = {&all, NULL, &top};
    for (int i = 0; i < 3; i++) {
        int fd = roots_open(open_all[i], in_tmp("secret"), NULL, &err);
        assert_true(fd >= 0);
        close(fd);
        assert_int_equal(roots_check_dir(open_all[i], in_tmp("blue"), &err), 0);
        assert_int_equal(roots_check_dir(open_all[i], in_tmp("secret"), &err), -1);
    }
}

/* What the server keeps for itself is no job's data, whichever way leads there. */
static void the_hidden_folder_is_refused_but_for_its_jobs(void **state)
{
    (void)state;
    char hidden[128];
    static const char *const red_dirs[] = {"/"};
    assert_int_equal(fs_mkdirs(in_tmp("data/jobs/7"), 0755, NULL), 0);
    assert_int_equal(fs_mkdirs(in_tmp("data/jobs/8"), 0755, NULL), 0);
    assert_int_equal(fs_mkdirs(in_tmp("data/jobs2"), 0755, NULL), 0);
    assert_int_equal(fs_mkdirs(in_tmp("data2"), 0755, NULL), 0);
    put("data/tandem.db", "out");
    put("data/jobs2/x", "out");
    put("data/jobs/7/x", "in");
    put("data/jobs/8/x", "in");
    put("data/jobs/x", "in");
    make_link("../8/x", "data/jobs/7/other");
    make_link("x", "data/jobs/7/same");
    put("data2/x", "in");
    make_link("../data/tandem.db", "red/db");
    make_link("data", "red_data");
    snprintf(hidden, sizeof hidden, "%s/data", tmp);
    const struct roots both[] = {
        {.hidden = hidden},
        {.limited = true, .tenant = "red", .dirs = red_dirs, .num = 1, .hidden = hidden}};
    static const char *const no[] = {"data/tandem.db",         "red/db",
                                     "red_data/tandem.db",     "data/jobs2/x",
                                     "data/jobs/../tandem.db", "red_data/jobs/7/x",
                                     "data/jobs/7/other",      "data/jobs/x",
                                     "data/jobs/7/../8/x"};
    static const char *const yes[] = {"data/jobs/7/x",     "data/jobs/8/x", "data/jobs/7/same",
                                      "data//./jobs/7//x", "data2/x",       "red/x"};
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
            struct error err = {0};
            assert_int_equal(roots_open(&both[k], in_tmp(no[i]), NULL, &err), -1);
            assert_int_equal(err.code, ERR_PERMISSION_DENIED);
            assert_non_null(strstr(err.text, "leads into the server's data folder"));
        }
        for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
            int fd = roots_open(&both[k], in_tmp(yes[i]), NULL, NULL);
            assert_true(fd >= 0);
            close(fd);
        }
    }
}

static void many_long_roots_make_a_message_that_says_how_many(void **state)
{
    (void)state;
    static char names[64][100];
    const char *many[64];
    for (int i = 0; i < 64; i++) {
        snprintf(names[i], sizeof names[i], "/data/%080d", i);
        many[i] = names[i];
    }
    struct roots r = {.limited = true, .tenant = "red", .dirs = many, .num = 64};
    struct error err;
    assert_int_equal(roots_open(&r, "/x", NULL, &err), -1);
    assert_non_null(strstr(err.text, " and 58 folders more"));
}

/* ---- a link that is turned while it is followed ---- */

static atomic_bool turning;

static void *turn(void *arg)
{
    (void)arg;
    const char *to[] = {"x", "../secret", in_tmp("red/a/y"), in_tmp("secret")};
    for (unsigned i = 0; atomic_load(&turning); i++) {
        char fresh[1024], door[1024];
        snprintf(fresh, sizeof fresh, "%s/red/fresh", tmp);
        snprintf(door, sizeof door, "%s/red/door", tmp);
        if (symlink(to[i % 4], fresh) != 0 || rename(fresh, door) != 0) {
            return "rename";
        }
    }
    return NULL;
}

static void a_link_that_turns_never_leads_out(void **state)
{
    (void)state;
    char door[1024];
    struct roots r = allowed();
    pthread_t thread;
    make_link("x", "red/door");
    snprintf(door, sizeof door, "%s/red/door", tmp);
    atomic_store(&turning, true);
    assert_int_equal(pthread_create(&thread, NULL, turn, NULL), 0);
    int opened = 0, refused = 0;
    int64_t until_ms = clock_mono_ms() + DEADLINE_S * 1000;
    for (int i = 0; i < 3000 || ((!opened || !refused) && clock_mono_ms() < until_ms); i++) {
        struct error err = {0};
        char *text;
        size_t len;
        if (roots_read_file(&r, door, 100, &text, &len, &err) != 0) {
            refused += err.code == ERR_PERMISSION_DENIED;
            continue;
        }
        opened++;
        bool in = strcmp(text, "in") == 0;
        free(text);
        if (!in) {
            atomic_store(&turning, false);
            pthread_join(thread, NULL);
            fail_msg("read what lies outside in try %d", i);
        }
    }
    void *why;
    atomic_store(&turning, false);
    pthread_join(thread, &why);
    assert_null(why);
    assert_true(opened > 0 && refused > 0);
}

/* ---- any tree, any path ---- */

static uint64_t seed = 1, draws;

static uint32_t draw(uint32_t n)
{
    return (uint32_t)(rng_u64(seed, 0, draws++) % n);
}

static void random_words(char *out, size_t size)
{
    static const char *const words[] = {"..",   "..",     ".", "a",     "b",  "red",
                                        "blue", "models", "x", "y",     "l0", "l1",
                                        "l2",   "l3",     "",  "named", "s",  "llama"};
    size_t n = 0;
    out[0] = 0;
    for (uint32_t left = draw(6); left; left--) {
        n += (size_t)snprintf(out + n, size - n, "%s/", words[draw(18)]);
    }
    if (n) {
        out[n - 1] = 0;
    }
}

/* Whatever links there are and whatever is asked for, only what holds "in" is ever read; and what
 * lies below a root by its real name can be. */
static void no_path_through_any_links_leads_out(void **state)
{
    (void)state;
    const char *text = getenv("TANDEM_SEED");
    int num = effort(20000, 300, 300);
    uint64_t first = text ? strtoull(text, NULL, 10) : 1;
    int opened = 0;
    for (int k = 0; k < num; k++) {
        seed = first + (uint64_t)k;
        draws = 0;
        static const char *const places[] = {"red", "red/a", "red/a/b", "models", "models/llama"};
        char link[4][1100], target[1024], words[512], path[1024];
        for (int i = 0; i < 4; i++) {
            random_words(words, sizeof words);
            snprintf(target, sizeof target, "%s%s%s", draw(2) ? tmp : ".", *words ? "/" : "",
                     words);
            snprintf(link[i], sizeof link[i], "%s/%s/l%d", tmp, places[draw(5)], i);
            assert_int_equal(symlink(target, link[i]), 0);
        }
        for (int i = 0; i < 20; i++) {
            random_words(words, sizeof words);
            snprintf(path, sizeof path, "%s/%s/%s", tmp, draw(2) ? "red" : "models", words);
            struct roots r = allowed();
            char *data;
            size_t len;
            if (roots_read_file(&r, path, 100, &data, &len, NULL) == 0) {
                if (strcmp(data, "in") != 0) {
                    fail_msg("TANDEM_SEED=%llu: %s was read", (unsigned long long)seed, path);
                }
                free(data);
                opened++;
            }
        }
        for (int i = 0; i < 4; i++) {
            assert_int_equal(unlink(link[i]), 0);
        }
    }
    assert_true(opened > num / 10);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(files_below_the_roots_are_opened),
        T(what_lies_beside_a_root_is_refused),
        T(links_are_followed_as_far_as_they_stay_inside),
        T(links_out_are_refused_alike_whatever_is_there),
        T(loops_and_odd_files_end),
        T(magic_links_are_not_followed),
        T(no_root_allows_nothing_and_no_limit_everything),
        T(the_hidden_folder_is_refused_but_for_its_jobs),
        T(many_long_roots_make_a_message_that_says_how_many),
        T(a_link_that_turns_never_leads_out),
        T(no_path_through_any_links_leads_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
