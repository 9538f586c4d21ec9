/* The events of `tandem show`: a page that a person can read, however many ranks a job has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "clients/cli/show.h"

#define CAUSE                                                                                      \
    "killed by signal 9 (SIGKILL), not by Tandem: someone's kill: the kernel's OOM killer has "    \
    "not "                                                                                         \
    "struck on this host meanwhile (15.6 GiB are available); on vm after step 4"
#define SUM "step 5: host call: all-reduce of bucket 0 over the data group (data 0-3): "

enum { EVENTS_MAX = 24 };

struct page {
    Job job;
    Event events[EVENTS_MAX];
    Event *list[EVENTS_MAX];
};

static void begin(struct page *p)
{
    job__init(&p->job);
    p->job.events = p->list;
}

static Event *add(struct page *p, const char *kind, int attempt, const char *message)
{
    assert_true(p->job.n_events < EVENTS_MAX);
    Event *e = &p->events[p->job.n_events];
    event__init(e);
    e->kind = (char *)(uintptr_t)kind;
    e->message = (char *)(uintptr_t)message;
    e->has_attempt = e->has_step = 1;
    e->attempt = attempt;
    e->step = 4;
    p->list[p->job.n_events++] = e;
    return e;
}

static void moves_to(Event *e, JobState to, const char *cause)
{
    e->has_to = 1;
    e->to = to;
    e->cause = (char *)(uintptr_t)cause;
}

static size_t count(const char *text, const char *what)
{
    size_t num = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what)) {
        num++;
    }
    return num;
}

static void says(const struct page *p, size_t num_lines, const char *const *lines)
{
    const struct cli cli = {0};
    struct buf out = {0};
    show_events(&cli, &p->job, &out);
    for (size_t i = 0; lines[i]; i++) {
        if (count(out.data, lines[i]) != 1) {
            fail_msg("wanted once \"%s\" in\n%s", lines[i], out.data);
        }
    }
    if (count(out.data, "\n") != num_lines) {
        fail_msg("wanted %zu lines, not\n%s", num_lines, out.data);
    }
    buf_free(&out);
}

/* One killed rank takes all others along; the page says why once, however the ends came in. */
static void ranks_that_follow_one_stand_in_a_line(void **state)
{
    (void)state;
    static const char *const ends[4] = {
        "rank 1: " CAUSE,
        "rank 2: " SUM "rank 1: " CAUSE,
        "rank 0: " SUM "rank 1: " CAUSE,
        "rank 3: " SUM "rank 1: " CAUSE,
    };
    for (int first = 0; first < 4; first++) {
        struct page p;
        begin(&p);
        for (int i = 0; i < 4; i++) {
            add(&p, "rank-exit", 1, ends[(first + i) % 4]);
        }
        moves_to(add(&p, "state", 1, "rank 1: " CAUSE " (restart 1 of 10 in 0 s)"), JOB_QUEUED,
                 "restart");
        says(&p, 3,
             (const char *const[]){
                 "rank-exit  step 4  rank 1: " CAUSE "\n",
                 "rank-exit  step 4  3 others left: 0, 2, 3\n",
                 "QUEUED     restart: rank 1, as above (restart 1 of 10 in 0 s)\n", NULL});
    }
}

/* A cancel ends each rank for the same reason, and many ranks are a range. */
static void ranks_that_end_alike_stand_in_a_line(void **state)
{
    (void)state;
    struct page p;
    begin(&p);
    char texts[10][64];
    for (int i = 0; i < 10; i++) {
        int rank = i == 9 ? 12 : (i + 4) % 9;
        snprintf(texts[i], sizeof texts[i], "rank %d: stopped by Tandem: cancelled by dev", rank);
        add(&p, "rank-exit", 1, texts[i]);
    }
    says(&p, 2,
         (const char *const[]){"rank 4: stopped by Tandem: cancelled by dev\n",
                               "9 others left: 0-3, 5-8, 12\n", NULL});
}

/* What doesn't follow from another keeps its line: a second fault, the next attempt. */
static void other_causes_keep_their_lines(void **state)
{
    (void)state;
    struct page p;
    begin(&p);
    add(&p, "rank-exit", 1, "rank 0 left with code 7");
    add(&p, "rank-exit", 1, "rank 1 left with code 7");
    add(&p, "rank-exit", 1, "rank 2: out of memory");
    add(&p, "rank-exit", 2, "rank 0 left with code 7");
    says(&p, 4,
         (const char *const[]){"rank 0 left with code 7\n  ", "1 other left: 1\n",
                               "rank 2: out of memory\n", NULL});
}

/* The same end in a later attempt, and one that stands above the events as the job's "why". */
static void a_long_cause_is_said_once(void **state)
{
    (void)state;
    struct page p;
    begin(&p);
    add(&p, "rank-exit", 1, "rank 1: " CAUSE);
    add(&p, "rank-exit", 2, "rank 1: " CAUSE);
    says(&p, 2, (const char *const[]){"rank 1: " CAUSE "\n", "rank 1, as above\n", NULL});
    p.job.message = (char[]){"rank 1: " CAUSE "; no restart is left"};
    p.job.n_events = 1;
    says(&p, 1, (const char *const[]){"rank-exit  step 4  rank 1, as above\n", NULL});
}

/* A job's end is known a moment before its last process is gone. */
static void an_attempt_of_a_job_that_has_ended_does_not_run(void **state)
{
    (void)state;
    char h[HUMAN_MAX];
    Job j = JOB__INIT;
    AttemptInfo a = ATTEMPT_INFO__INIT;
    a.started_us = 1000000;
    j.state = JOB_RUNNING;
    assert_string_equal(show_attempt_length(&j, &a, h), "runs");
    j.state = JOB_PAUSED;
    assert_string_equal(show_attempt_length(&j, &a, h), "ends");
    j.state = JOB_SUCCEEDED;
    j.ended_us = 43000000;
    assert_string_equal(show_attempt_length(&j, &a, h), "42s");
    a.ended_us = 8000000;
    assert_string_equal(show_attempt_length(&j, &a, h), "7.0s");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_attempt_of_a_job_that_has_ended_does_not_run),
        cmocka_unit_test(ranks_that_follow_one_stand_in_a_line),
        cmocka_unit_test(ranks_that_end_alike_stand_in_a_line),
        cmocka_unit_test(other_causes_keep_their_lines),
        cmocka_unit_test(a_long_cause_is_said_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
