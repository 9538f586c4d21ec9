#include "tests/fault/crew.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/node/gang.h"
#include "runtime/node/proctree.h"

struct crew {
    struct gang *gang;
    Start start;
    char resume_dir[512];
    struct crew_end end;
    int64_t begin_ms;
};

static void on_up(void *arg, int32_t rank, const RankUp *up)
{
    struct crew_end *e = &((struct crew *)arg)->end;
    (void)rank;
    if (up->body_case != RANK_UP__BODY_METRICS)
        return;
    assert_in_range(up->metrics->step, 1, CREW_STEPS);
    e->last_step = up->metrics->step;
    e->loss[e->last_step] = up->metrics->loss;
    e->num_steps++;
}

static void on_exit_of_rank(void *arg, const RankExit *gone)
{
    struct crew_end *e = &((struct crew *)arg)->end;
    assert_in_range(gone->rank, 0, e->num_ranks - 1);
    e->kind[gone->rank] = gone->kind;
    snprintf(e->why[gone->rank], sizeof(e->why[0]), "%s", gone->message);
}

struct crew *crew_start(const struct crew_options *o)
{
    struct crew *c = calloc(1, sizeof(*c));
    struct error err = {0};
    char ckpts[512];
    assert_non_null(c);
    assert_in_range(o->plan->mesh->num_ranks, 1, CREW_MOST);
    c->begin_ms = clock_mono_ms();
    c->end.num_ranks = (int32_t)o->plan->mesh->num_ranks;
    struct gang_options options = {
        .job_id = 7,
        .attempt = o->attempt,
        .num_ranks = c->end.num_ranks,
        .shared_bytes = o->plan->memory->shared_bytes,
        .program = o->program,
        .job_dir = o->job_dir,
        .log_dir = o->job_dir,
        .abort_grace_ms = o->abort_grace_ms,
        .term_grace_ms = 300,
        .stopped_ms = o->stopped_ms,
        .host = "here",
        .on_up = on_up,
        .on_exit = on_exit_of_rank,
        .arg = c,
    };
    if (gang_new(&c->gang, &options, &err) != 0)
        fail_msg("%s", err.text);
    /* What tandem-node does before it starts ranks. */
    snprintf(ckpts, sizeof(ckpts), "%s/ckpt", o->job_dir);
    int64_t step = 0;
    if (fs_exists(ckpts) &&
        (ckpt_sweep(ckpts, &err) != 0 ||
         ckpt_newest(ckpts, c->resume_dir, sizeof(c->resume_dir), &step, &err) != 0))
        fail_msg("%s", err.text);
    start__init(&c->start);
    c->start.plan = (Plan *)(uintptr_t)o->plan;
    c->start.resume_dir = c->resume_dir;
    c->start.has_resume_step = 1;
    c->start.resume_step = step;
    gang_start(c->gang, &c->start);
    return c;
}

static void look(struct crew *c, int64_t most_ms)
{
    struct pollfd fds[2 * CREW_MOST];
    int64_t timeout_ms;
    int num = gang_poll_begin(c->gang, fds, true, &timeout_ms);
    timeout_ms = timeout_ms < 0 || timeout_ms > most_ms ? most_ms : timeout_ms;
    poll(fds, (nfds_t)num, (int)timeout_ms);
    gang_poll_end(c->gang, fds, num);
}

void crew_watch(struct crew *c, int64_t ms)
{
    int64_t until = clock_mono_ms() + ms, left;
    while ((left = until - clock_mono_ms()) > 0 && !gang_is_gone(c->gang))
        look(c, left);
}

int crew_pid(const struct crew *c, int32_t rank)
{
    pid_t pids[64];
    int num = proctree_children(pids, 64);
    (void)c;
    for (int i = 0; i < num && i < 64; i++) {
        char path[64], words[256] = "";
        snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pids[i]);
        FILE *f = fopen(path, "r");
        size_t len = f != NULL ? fread(words, 1, sizeof(words) - 1, f) : 0;
        if (f != NULL)
            fclose(f);
        for (size_t at = 0; at + 7 < len; at++)
            if (memcmp(words + at, "--rank", 7) == 0 && atoi(words + at + 7) == rank)
                return (int)pids[i];
    }
    return 0;
}

void crew_end(struct crew *c, int64_t limit_ms, struct crew_end *out)
{
    AttemptEnd end = ATTEMPT_END__INIT;
    int64_t until = clock_mono_ms() + limit_ms;
    pid_t left[4];
    while (!gang_is_gone(c->gang)) {
        if (clock_mono_ms() >= until)
            fail_msg("ranks are still there after %lld ms", (long long)limit_ms);
        look(c, 1000);
    }
    assert_int_equal(proctree_children(left, 4), 0);
    gang_end(c->gang, &end);
    c->end.finished = end.finished;
    c->end.first_failed = end.first_failed_rank;
    c->end.took_ms = clock_mono_ms() - c->begin_ms;
    snprintf(c->end.message, sizeof(c->end.message), "%s", end.message ? end.message : "");
    *out = c->end;
    gang_free(c->gang);
    free(c);
}
