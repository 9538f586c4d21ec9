/* server/launching over a launcher that is made up: what can't be killed delays nobody else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "server/launching.h"
#include "server/msg.h"

#define MOST 16

/* Processes are numbers: pid n is there while there[n]. */
struct fake {
    struct launcher base;    /* first */
    _Atomic int there[MOST]; /* enum launch_presence */
    _Atomic int kills[MOST];
    _Atomic bool mortal;
    _Atomic int starts;
    _Atomic int stall_ms; /* that the first look takes; the third finds nothing more */
    _Atomic int looks;
    /* Who holds it keeps the launch thread from its next kill: all is posted before it goes on. */
    pthread_mutex_t gate;
};

static int fake_start(struct launcher *l, int64_t job_id, int32_t attempt, const char *log_path,
                      struct launch_handle *out, int *ticket_fd, struct error *err)
{
    (void)log_path;
    (void)attempt;
    (void)err;
    struct fake *f = (struct fake *)l;
    f->starts++;
    f->there[job_id] = LAUNCH_ALIVE;
    *out = (struct launch_handle){.pid = job_id};
    *ticket_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    return 0;
}

static void fake_kill(struct launcher *l, const struct launch_handle *h)
{
    struct fake *f = (struct fake *)l;
    pthread_mutex_lock(&f->gate);
    pthread_mutex_unlock(&f->gate);
    f->kills[h->pid]++;
    if (f->mortal) {
        f->there[h->pid] = LAUNCH_GONE;
    }
}

static enum launch_presence fake_look(struct launcher *l, const struct launch_handle *h,
                                      struct launch_left *left)
{
    struct fake *f = (struct fake *)l;
    int look = ++f->looks;
    if (f->stall_ms && look == 1) {
        clock_sleep_ms(f->stall_ms);
    } else if (f->stall_ms && look == 3) {
        f->there[h->pid] = LAUNCH_GONE;
    }
    if (left) {
        *left = (struct launch_left){.pid = h->pid, .name = "rank", .state = 'D', .num = 1};
    }
    return (enum launch_presence)f->there[h->pid];
}

static void fake_free(struct launcher *l)
{
    (void)l; /* lies in the test */
}

static int nothing(void *controller, struct mail *m, struct error *err)
{
    (void)controller;
    (void)m;
    (void)err;
    return 0;
}

struct bench {
    struct fake fake;
    struct mailbox *box;
    struct launching *launching;
    struct mailbox_node *waiting; /* taken from the box, not looked at yet */
    char dir[64];
};

static void open_bench(struct bench *b, bool mortal)
{
    memset(b, 0, sizeof *b);
    b->fake.base = (struct launcher){.name = "fake",
                                     .start = fake_start,
                                     .kill = fake_kill,
                                     .look = fake_look,
                                     .free = fake_free};
    b->fake.mortal = mortal;
    pthread_mutex_init(&b->fake.gate, NULL);
    snprintf(b->dir, sizeof b->dir, "/tmp/tandem-launching-XXXXXX");
    assert_non_null(mkdtemp(b->dir));
    assert_int_equal(mailbox_new(&b->box), 0);
    assert_int_equal(launching_new(&b->launching, &b->fake.base, "/nonexistent", b->box, NULL), 0);
}

static void close_bench(struct bench *b)
{
    launching_free(b->launching);
    mail_free_chain(b->waiting);
    mail_free_chain(mailbox_take(b->box, 0));
    mailbox_free(b->box);
    pthread_mutex_destroy(&b->fake.gate);
    assert_int_equal(fs_remove_tree(b->dir, NULL), 0);
}

static void post(struct bench *b, enum launch_kind kind, int64_t job)
{
    struct launch_mail *m = launch_mail_new(kind, job, 1, nothing);
    m->handle.pid = job;
    if (kind == LAUNCH_START) {
        m->ticket = msg_new(&launch_ticket__descriptor);
        msg_text(&m->ticket->job_dir, b->dir);
    }
    launching_post(b->launching, m);
}

/* The next answer; freed by the caller. */
static struct launch_mail *take(struct bench *b)
{
    int64_t until = clock_mono_ms() + 60000;
    while (!b->waiting) {
        assert_true(clock_mono_ms() < until);
        b->waiting = mailbox_take(b->box, 1000);
    }
    struct mailbox_node *first = b->waiting;
    b->waiting = first->next;
    return (struct launch_mail *)first;
}

/* (25) Ten kills that don't help: a start and a check are answered before any of them is given up,
 * and each of them says what is still there. */
static void a_kill_that_does_not_help_delays_nobody(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, false);
    pthread_mutex_lock(&b.fake.gate);
    for (int job = 0; job < 10; job++) {
        b.fake.there[job] = job % 2 ? LAUNCH_ALIVE : LAUNCH_REMAINS;
        post(&b, LAUNCH_KILL, job);
    }
    post(&b, LAUNCH_START, 12);
    post(&b, LAUNCH_CHECK, 12);
    pthread_mutex_unlock(&b.fake.gate);
    struct launch_mail *m = take(&b);
    assert_true(m->kind == LAUNCH_START && m->ok && m->job_id == 12);
    mail_free(&m->mail);
    m = take(&b);
    assert_true(m->kind == LAUNCH_CHECK && m->ok && !m->stuck);
    mail_free(&m->mail);
    for (int i = 0; i < 10; i++) {
        m = take(&b);
        assert_true(m->kind == LAUNCH_KILL && !m->ok && m->stuck);
        assert_non_null(strstr(m->error.text, "(rank, state D) was killed and is still there"));
        assert_true(b.fake.kills[m->job_id] > 1);
        mail_free(&m->mail);
    }
    close_bench(&b);
}

static void a_kill_is_answered_when_all_are_gone(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, true);
    b.fake.there[3] = LAUNCH_ALIVE;
    post(&b, LAUNCH_KILL, 3);
    struct launch_mail *m = take(&b);
    assert_true(m->ok && !m->stuck);
    mail_free(&m->mail);
    close_bench(&b);
}

/* Of a machine that stood still, nothing is gone by then. */
static void a_kill_is_not_given_up_because_time_has_passed(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, false);
    b.fake.there[3] = LAUNCH_ALIVE;
    b.fake.stall_ms = 2100; /* longer than kills are tried for */
    post(&b, LAUNCH_KILL, 3);
    struct launch_mail *m = take(&b);
    assert_true(m->ok && !m->stuck);
    mail_free(&m->mail);
    close_bench(&b);
}

/* (25) tandem-node is gone, a child of a rank isn't: a check doesn't take that for a running gang.
 */
static void a_check_kills_what_outlived_its_tandem_node(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, true);
    b.fake.there[3] = LAUNCH_REMAINS;
    post(&b, LAUNCH_CHECK, 3);
    struct launch_mail *m = take(&b);
    assert_true(m->kind == LAUNCH_CHECK && !m->ok && !m->stuck);
    assert_int_equal(b.fake.kills[3], 1);
    mail_free(&m->mail);
    b.fake.mortal = false;
    b.fake.there[3] = LAUNCH_REMAINS;
    post(&b, LAUNCH_CHECK, 3);
    m = take(&b);
    assert_true(m->ok && m->stuck);
    mail_free(&m->mail);
    close_bench(&b);
}

/* The end of the controller doesn't wait for a kill, and loses no memory. */
static void an_end_in_the_middle_of_a_kill_is_clean(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, false);
    b.fake.there[3] = LAUNCH_ALIVE;
    pthread_mutex_lock(&b.fake.gate);
    post(&b, LAUNCH_KILL, 3);
    post(&b, LAUNCH_START, 4);
    pthread_mutex_unlock(&b.fake.gate);
    struct launch_mail *m = take(&b);
    assert_true(m->kind == LAUNCH_START);
    mail_free(&m->mail);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_that_does_not_help_delays_nobody),
        cmocka_unit_test(a_kill_is_answered_when_all_are_gone),
        cmocka_unit_test(a_kill_is_not_given_up_because_time_has_passed),
        cmocka_unit_test(a_check_kills_what_outlived_its_tandem_node),
        cmocka_unit_test(an_end_in_the_middle_of_a_kill_is_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
