/* base/: what every other part stands on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/mailbox.h"
#include "base/printable.h"
#include "base/rng.h"

/* Known answers of Philox4x32-10 from the authors' test vectors: another generator under the same
 * name would change every run. */
static void philox_gives_the_published_vectors(void **state)
{
    (void)state;
    uint32_t out[4];
    rng_philox4x32((uint32_t[4]){0}, (uint32_t[2]){0}, out);
    assert_int_equal(out[0], 0x6627e8d5u);
    assert_int_equal(out[1], 0xe169c58du);
    assert_int_equal(out[2], 0xbc57ac4cu);
    assert_int_equal(out[3], 0x9b00dbd8u);
    rng_philox4x32((uint32_t[4]){0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u},
                   (uint32_t[2]){0xa4093822u, 0x299f31d0u}, out);
    assert_int_equal(out[0], 0xd16cfe09u);
    assert_int_equal(out[1], 0x94fdccebu);
    assert_int_equal(out[2], 0x5001e420u);
    assert_int_equal(out[3], 0x24126ea1u);
}

/* A shuffled epoch shows each sample once. */
static void permutation_hits_every_index_once(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 5, 64, 331, 4097};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t n = sizes[i];
        unsigned char *seen = calloc(n, 1);
        uint64_t fixed = 0;
        for (uint64_t j = 0; j < n; j++) {
            uint64_t p = rng_permute(7, 3, n, j);
            assert_true(p < n);
            assert_int_equal(seen[p], 0);
            seen[p] = 1;
            fixed += p == j;
        }
        assert_true(n < 331 || fixed < n / 20);
        free(seen);
    }
    assert_int_not_equal(rng_permute(1, 0, 1u << 30, 5), rng_permute(2, 0, 1u << 30, 5));
}

static void normal_draws_have_mean_0_and_variance_1(void **state)
{
    (void)state;
    double sum = 0, squares = 0;
    int n = 20000;
    for (int i = 0; i < n; i++) {
        double x = rng_normal(1234, rng_stream("w"), (uint64_t)i);
        assert_true(isfinite(x));
        sum += x;
        squares += x * x;
    }
    assert_true(fabs(sum / n) < 0.03);
    assert_true(fabs(squares / n - 1) < 0.05);
}

static void error_text_is_wrapped_outward_and_cut_at_whole_characters(void **state)
{
    (void)state;
    struct error err = {0};
    assert_int_equal(error_set(&err, ERR_NOT_FOUND, "no such %s", "file"), -1);
    error_wrap(&err, "read plan %d", 7);
    assert_string_equal(err.text, "read plan 7: no such file");
    assert_int_equal(err.code, ERR_NOT_FOUND);
    char many[2 * ERROR_TEXT_MAX + 1];
    for (int i = 0; i < ERROR_TEXT_MAX; i++) {
        memcpy(many + 2 * i, "\xc3\xa9", 2);
    }
    many[2 * ERROR_TEXT_MAX] = 0;
    error_set(&err, ERR_INTERNAL, "x%s", many);
    size_t n = strlen(err.text);
    assert_true(n >= ERROR_TEXT_MAX - 3);
    assert_int_equal((unsigned char)err.text[n - 1], 0xa9);
    assert_int_equal(error_set(NULL, ERR_INTERNAL, "ignored"), -1);
}

static void arena_refuses_what_passes_its_cap(void **state)
{
    (void)state;
    struct arena a = {.max_bytes = 1000};
    assert_non_null(arena_alloc(&a, 900));
    assert_null(arena_alloc(&a, 200));
    assert_null(arena_alloc(&a, SIZE_MAX));
    assert_non_null(arena_strdup(&a, "still fits"));
    arena_free(&a);
    assert_int_equal(a.used_bytes, 0);
}

static void buf_keeps_a_nul_behind_its_content(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_printf(&b, "%d-%s", 42, "x");
    buf_putc(&b, '!');
    assert_string_equal(b.data, "42-x!");
    buf_consume(&b, 3);
    assert_string_equal(b.data, "x!");
    char *taken = buf_take(&b);
    assert_string_equal(taken, "x!");
    free(taken);
    taken = buf_take(&b);
    assert_string_equal(taken, "");
    free(taken);
}

static void files_are_replaced_whole_and_read_with_a_bound(void **state)
{
    (void)state;
    char dir[] = "/tmp/tandem-base-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char path[PATH_MAX], deep[PATH_MAX];
    assert_true(fs_join(path, sizeof path, dir, "f"));
    assert_true(fs_join(deep, sizeof deep, dir, "a/b/c"));
    struct error err = {0};
    assert_int_equal(fs_write_atomic(path, "hello", 5, 0600, &err), 0);
    assert_int_equal(fs_write_atomic(path, "world!", 6, 0600, &err), 0);
    char *text;
    size_t len;
    assert_int_equal(fs_read_file(path, 6, &text, &len, &err), 0);
    assert_string_equal(text, "world!");
    free(text);
    assert_int_equal(fs_read_file(path, 5, &text, &len, &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(fs_read_file(dir, 5, &text, &len, &err), -1);
    assert_int_equal(fs_mkdirs(deep, 0700, &err), 0);
    assert_int_equal(fs_mkdirs(path, 0700, &err), -1);
    assert_int_equal(fs_remove_tree(dir, &err), 0);
    assert_false(fs_exists(dir));
    assert_int_equal(fs_remove_tree(dir, &err), 0);
}

/* Below a folder that is removed others may have put links, and many folders in each other. */
static void only_what_lies_in_a_folder_is_removed_with_it(void **state)
{
    (void)state;
    char top[] = "/tmp/tandem-base-XXXXXX", path[PATH_MAX], kept[PATH_MAX];
    struct error err = {0};
    assert_non_null(mkdtemp(top));
    assert_true(fs_join(path, sizeof path, top, "other"));
    assert_true(fs_join(kept, sizeof kept, path, "kept"));
    assert_int_equal(fs_mkdirs(path, 0700, &err), 0);
    assert_int_equal(fs_write_atomic(kept, "x", 1, 0600, &err), 0);
    assert_true(fs_join(path, sizeof path, top, "logs/deep"));
    assert_int_equal(fs_mkdirs(path, 0700, &err), 0);
    assert_true(fs_join(path, sizeof path, top, "logs/link"));
    assert_int_equal(symlink("../other", path), 0);
    int dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(dir >= 0);
    assert_int_equal(fs_remove_tree_at(dir, "logs", &err), 0);
    assert_int_equal(fs_remove_tree_at(dir, "logs", &err), 0);
    assert_true(fs_exists(kept));
    /* Each level takes a descriptor. */
    int at = dup(dir);
    for (int i = 0; i < 70; i++) {
        assert_int_equal(mkdirat(at, "d", 0700), 0);
        int next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = next;
        assert_true(at >= 0);
    }
    assert_int_equal(fs_remove_tree_at(dir, "d", &err), -1);
    close(at);
    /* From the middle on it can be done. */
    assert_int_equal(fs_remove_tree_at(dir, "d/d/d/d/d/d/d/d/d/d", &err), 0);
    assert_int_equal(fs_remove_tree_at(dir, "d", &err), 0);
    close(dir);
    assert_int_equal(fs_remove_tree(top, &err), 0);
}

/* What a stranger wrote moves no cursor and begins no line. */
static void control_characters_are_taken_out_of_text(void **state)
{
    (void)state;
    char line[] = "a\033]0;x\007\r\nb\t\302\233m \303\251\302\240\177";
    printable_line(line, strlen(line));
    assert_string_equal(line, "a?]0;x?? b ??m \303\251\302\240?");
}

/* Whoever reads a message whose text is cut in a character throws all of it away. */
static void what_is_no_utf_8_is_taken_out_of_text(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"", ""},
        {"a\303\251\342\202\254\360\237\230\200\177", "a\303\251\342\202\254\360\237\230\200\177"},
        {"a\303", "a?"},
        {"a\342\202", "a??"},
        {"\303)\251", "?)?"},
        {"\300\200\340\200\200\355\240\200", "????????"},
        {"\364\220\200\200\370", "?????"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s", texts[i][0]);
        printable_utf8(text);
        assert_string_equal(text, texts[i][1]);
    }
    struct error err;
    error_set(&err, ERR_NOT_FOUND, "no \"%.2s\"", "x\303\251");
    assert_string_equal(err.text, "no \"x?\"");
    error_set(&err, ERR_NOT_FOUND, "no \"%s\"", "c\np\033[2J");
    assert_string_equal(err.text, "no \"c p?[2J\"");
}

/* What isn't a regular file is told at once: nobody waits for the other end of a FIFO. */
static void a_file_to_append_to_is_a_file(void **state)
{
    (void)state;
    char dir[] = "/tmp/tandem-base-XXXXXX", path[PATH_MAX], *text;
    assert_non_null(mkdtemp(dir));
    assert_true(fs_join(path, sizeof path, dir, "f"));
    struct error err = {0};
    size_t len;
    for (int i = 0; i < 2; i++) {
        int fd = fs_open_append(path, 0600, &err);
        assert_true(fd >= 0);
        assert_int_equal(fs_write_all(fd, "x", 1), 0);
        close(fd);
    }
    assert_int_equal(fs_read_file(path, 9, &text, &len, &err), 0);
    assert_string_equal(text, "xx");
    free(text);
    assert_int_equal(fs_open_append(dir, 0600, &err), -1);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(fs_open_append(path, 0600, &err), -1);
    assert_non_null(strstr(err.text, path));
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    assert_int_equal(fs_open_append(path, 0600, &err), -1);
    assert_non_null(strstr(err.text, "not a regular file"));
    close(reader);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("elsewhere", path), 0);
    assert_int_equal(fs_open_append(path, 0600, &err), -1);
    assert_int_equal(fs_remove_tree(dir, &err), 0);
}

struct letter {
    struct mailbox_node node; /* first */
    int sender, number;
};

static void *send_letters(void *arg)
{
    struct letter *letters = arg;
    struct mailbox *m = *(struct mailbox **)(void *)(letters + 1000);
    for (int i = 0; i < 1000; i++) {
        mailbox_post(m, &letters[i].node);
    }
    return NULL;
}

static void mailbox_delivers_all_in_each_senders_order(void **state)
{
    (void)state;
    struct mailbox *m;
    assert_int_equal(mailbox_new(&m), 0);
    pthread_t threads[3];
    struct letter *letters[3];
    for (int s = 0; s < 3; s++) {
        letters[s] = calloc(1001, sizeof **letters);
        for (int i = 0; i < 1000; i++) {
            letters[s][i].sender = s;
            letters[s][i].number = i;
        }
        *(struct mailbox **)(void *)(letters[s] + 1000) = m;
        pthread_create(&threads[s], NULL, send_letters, letters[s]);
    }
    int next[3] = {0};
    int64_t until = clock_mono_ms() + 30000;
    while (next[0] + next[1] + next[2] < 3000) {
        assert_true(clock_mono_ms() < until);
        struct mailbox_node *n = mailbox_take(m, 5000);
        for (; n; n = n->next) {
            struct letter *l = (struct letter *)(void *)n;
            assert_int_equal(l->number, next[l->sender]++);
        }
    }
    for (int s = 0; s < 3; s++) {
        pthread_join(threads[s], NULL);
        free(letters[s]);
    }
    assert_null(mailbox_take(m, 0));
    mailbox_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_vectors),
        cmocka_unit_test(permutation_hits_every_index_once),
        cmocka_unit_test(normal_draws_have_mean_0_and_variance_1),
        cmocka_unit_test(error_text_is_wrapped_outward_and_cut_at_whole_characters),
        cmocka_unit_test(arena_refuses_what_passes_its_cap),
        cmocka_unit_test(buf_keeps_a_nul_behind_its_content),
        cmocka_unit_test(files_are_replaced_whole_and_read_with_a_bound),
        cmocka_unit_test(only_what_lies_in_a_folder_is_removed_with_it),
        cmocka_unit_test(control_characters_are_taken_out_of_text),
        cmocka_unit_test(what_is_no_utf_8_is_taken_out_of_text),
        cmocka_unit_test(a_file_to_append_to_is_a_file),
        cmocka_unit_test(mailbox_delivers_all_in_each_senders_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
