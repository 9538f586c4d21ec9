/* runtime/link/: what passes between a rank and tandem-node. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/link/link.h"
#include "tests/deadline.h"

struct pair {
    int fds[2];
    struct link *link; /* on fds[0] */
};

static void pair_open(struct pair *p)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p->fds), 0);
    assert_int_equal(link_new(&p->link, p->fds[0], NULL), 0);
}

static void pair_close(struct pair *p)
{
    link_free(p->link);
    close(p->fds[0]);
    if (p->fds[1] >= 0) {
        close(p->fds[1]);
    }
}

static void frame_stop(struct buf *out, int64_t step)
{
    StopAtStep stop = STOP_AT_STEP__INIT;
    stop.has_step = 1;
    stop.step = step;
    RankDown down = RANK_DOWN__INIT;
    down.body_case = RANK_DOWN__BODY_STOP_AT_STEP;
    down.stop_at_step = &stop;
    assert_int_equal(link_frame(out, &down.base, NULL), 0);
}

static void expect_stop(struct link *l, int64_t timeout_ms, int64_t step)
{
    RankDown *down = NULL;
    assert_int_equal(link_poll(l, timeout_ms, &down, NULL), 0);
    assert_non_null(down);
    assert_int_equal(down->body_case, RANK_DOWN__BODY_STOP_AT_STEP);
    assert_int_equal(down->stop_at_step->step, step);
    rank_down__free_unpacked(down, NULL);
}

/* Commands come whole and in order, however the stream cuts them. */
static void commands_survive_any_cut_of_the_stream(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    struct buf bytes = {0};
    for (int64_t i = 0; i < 5; i++) {
        frame_stop(&bytes, i << (8 * i));
    }
    for (size_t cut = 1; cut < bytes.len; cut++) {
        RankDown *down;
        assert_int_equal(fs_write_all(p.fds[1], bytes.data, cut), 0);
        int64_t seen = 0;
        while (link_poll(p.link, 0, &down, NULL) == 0 && down) {
            assert_int_equal(down->stop_at_step->step, seen << (8 * seen));
            rank_down__free_unpacked(down, NULL);
            seen++;
        }
        assert_int_equal(fs_write_all(p.fds[1], bytes.data + cut, bytes.len - cut), 0);
        for (; seen < 5; seen++) {
            expect_stop(p.link, 10000, seen << (8 * seen));
        }
    }
    buf_free(&bytes);
    pair_close(&p);
}

static void an_empty_link_times_out_with_nothing(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    RankDown *down = (RankDown *)1;
    assert_int_equal(link_poll(p.link, 0, &down, NULL), 0);
    assert_null(down);
    assert_int_equal(link_poll(p.link, 5, &down, NULL), 0);
    assert_null(down);
    pair_close(&p);
}

/* A rank must notice that its node is gone. */
static void the_other_sides_end_is_an_error(void **state)
{
    (void)state;
    struct pair p;
    struct error err = {0};
    RankDown *down;
    pair_open(&p);
    close(p.fds[1]);
    p.fds[1] = -1;
    assert_int_equal(link_poll(p.link, 10000, &down, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    RankUp up = RANK_UP__INIT;
    assert_int_equal(link_send(p.link, &up, &err), -1); /* and no SIGPIPE */
    pair_close(&p);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
    } cases[] = {{"\x01\x00\x40\x00", 4}, {"\xff\xff\xff\xff", 4}, {"\x02\x00\x00\x00\xff\xff", 6}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pair p;
        struct error err = {0};
        RankDown *down;
        pair_open(&p);
        assert_int_equal(fs_write_all(p.fds[1], cases[i].bytes, cases[i].len), 0);
        assert_int_equal(link_poll(p.link, 10000, &down, &err), -1);
        assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
        pair_close(&p);
    }
}

struct sender {
    struct link *link;
    int32_t rank;
};

static void *send_many(void *arg)
{
    struct sender *s = arg;
    for (int64_t i = 1; i <= 500; i++) {
        Progress progress = PROGRESS__INIT;
        progress.has_rank = progress.has_step = 1;
        progress.rank = s->rank;
        progress.step = i;
        progress.phase = (char *)(uintptr_t)(i % 2 ? "forward" : "a longer name of a phase");
        RankUp up = RANK_UP__INIT;
        up.body_case = RANK_UP__BODY_PROGRESS;
        up.progress = &progress;
        if (link_send(s->link, &up, NULL) != 0) {
            return s;
        }
    }
    return NULL;
}

/* Reports of several threads don't mix, through a socket that is full most of the time. */
static void threads_can_send_at_once(void **state)
{
    (void)state;
    struct pair p;
    pair_open(&p);
    struct sender senders[4];
    pthread_t threads[4];
    for (int32_t i = 0; i < 4; i++) {
        senders[i] = (struct sender){.link = p.link, .rank = i};
        assert_int_equal(pthread_create(&threads[i], NULL, send_many, &senders[i]), 0);
    }
    struct link_decoder *d;
    assert_int_equal(link_decoder_new(&d), 0);
    int64_t last[4] = {0};
    for (int num = 0; num < 2000;) {
        char data[777];
        deadline_begin(DEADLINE_S, "report %d of 2,000 on the link", num + 1);
        ssize_t n = read(p.fds[1], data, sizeof data);
        deadline_end();
        assert_true(n > 0);
        assert_int_equal(link_decoder_feed(d, data, (size_t)n, NULL), 0);
        const uint8_t *body;
        size_t len;
        while (link_decoder_next(d, &body, &len, NULL) == 0 && body) {
            RankUp *up = rank_up__unpack(NULL, len, body);
            assert_non_null(up);
            assert_int_equal(up->progress->step, ++last[up->progress->rank]);
            rank_up__free_unpacked(up, NULL);
            num++;
        }
    }
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    link_decoder_free(d);
    pair_close(&p);
}

static void count_up(void *arg, const RankUp *up)
{
    *(int64_t *)arg += up->done->step;
}

static void a_local_link_does_the_same(void **state)
{
    (void)state;
    struct link *l;
    int64_t sum = 0;
    assert_int_equal(link_new_local(&l, count_up, &sum), 0);
    RankDone done = RANK_DONE__INIT;
    done.has_step = 1;
    done.step = 40;
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_DONE;
    up.done = &done;
    assert_int_equal(link_send(l, &up, NULL), 0);
    assert_int_equal(sum, 40);

    RankDown *none;
    assert_int_equal(link_poll(l, 1, &none, NULL), 0);
    assert_null(none);
    StopAtStep stop = STOP_AT_STEP__INIT;
    stop.has_step = 1;
    RankDown down = RANK_DOWN__INIT;
    down.body_case = RANK_DOWN__BODY_STOP_AT_STEP;
    down.stop_at_step = &stop;
    for (stop.step = 1; stop.step <= 3; stop.step++) {
        assert_int_equal(link_inject(l, &down), 0);
    }
    expect_stop(l, 0, 1);
    expect_stop(l, 1000, 2);
    link_free(l); /* with one inside */
}

/* A rank never outlives the node that started it. */
static void a_rank_dies_with_its_parent(void **state)
{
    (void)state;
    int alive[2], link[2];
    assert_int_equal(pipe(alive), 0);
    pid_t node = fork();
    if (node == 0) {
        socketpair(AF_UNIX, SOCK_STREAM, 0, link);
        if (fork() == 0) {
            if (link_die_with_parent(link[0], NULL) == 0) {
                fs_write_all(alive[1], "x", 1);
            }
            pause();
        }
        pause();
    }
    close(alive[1]);
    char c;
    deadline_begin(DEADLINE_S, "a rank that starts and dies with its parent");
    assert_int_equal(read(alive[0], &c, 1), 1);
    kill(node, SIGKILL);
    waitpid(node, NULL, 0);
    /* The end of the pipe: the last process that held it is gone. */
    assert_int_equal(read(alive[0], &c, 1), 0);
    deadline_end();
    close(alive[0]);
}

static void a_rank_whose_parent_is_another_does_not_start(void **state)
{
    (void)state;
    int link[2], status;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, link), 0);
    pid_t child = fork();
    if (child == 0) {
        if (fork() == 0) {
            _exit(link_die_with_parent(link[0], NULL) == -1 ? 7 : 0);
        }
        int inner;
        wait(&inner);
        _exit(WEXITSTATUS(inner));
    }
    deadline_begin(DEADLINE_S, "the end of a rank that may not start");
    assert_int_equal(waitpid(child, &status, 0), child);
    deadline_end();
    assert_int_equal(WEXITSTATUS(status), 7);
    close(link[0]);
    close(link[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_survive_any_cut_of_the_stream),
        cmocka_unit_test(an_empty_link_times_out_with_nothing),
        cmocka_unit_test(the_other_sides_end_is_an_error),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(threads_can_send_at_once),
        cmocka_unit_test(a_local_link_does_the_same),
        cmocka_unit_test(a_rank_dies_with_its_parent),
        cmocka_unit_test(a_rank_whose_parent_is_another_does_not_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
