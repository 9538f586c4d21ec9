/* The gang of a sim_node: steps, checkpoints, failures, ends. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/msg.h"
#include "tests/sim/sim_check.h"
#include "tests/sim/sim_node_private.h"

#define STOPPED_US 30000000

double sim_node_loss(const struct sim_job *j, int64_t step)
{
    return 10.0 / (1.0 + (double)step) + (double)j->idx;
}

static WorkerUp *new_up(Tandem__V1__WorkerUp__BodyCase what)
{
    WorkerUp *up = msg_new(&worker_up__descriptor);
    up->body_case = what;
    return up;
}

/* ---- checkpoints ---- */

/* "ckpt/step-00000010-a1" of a job: where it stands in the job's list, or -1. */
static int32_t find_checkpoint(const struct sim_job *j, const char *dir)
{
    for (int32_t i = 0; i < j->num_checkpoints; i++) {
        if (strcmp(j->checkpoints[i].dir, dir) == 0) {
            return i;
        }
    }
    return -1;
}

bool sim_node_file_exists(struct sim *s, const char *path)
{
    long long id;
    char dir[96], file[32];
    if (sscanf(path, SIM_DATA_DIR "/jobs/%lld/ckpt/%80[^/]/%31s", &id, dir, file) != 3) {
        sim_fail(s, "the controller looks for %s", path);
        return false;
    }
    const struct sim_job *j = sim_client_job(s, id);
    char full[128];
    snprintf(full, sizeof full, "ckpt/%s", dir);
    int32_t i = find_checkpoint(j, full);
    return i >= 0 && (strcmp(file, "COMPLETE") == 0 || j->checkpoints[i].damaged);
}

void sim_node_tell(const struct sim_node *n)
{
    for (int32_t i = 0; i < n->truth->num_checkpoints; i++) {
        struct sim_checkpoint *k = &n->truth->checkpoints[i];
        k->is_told = k->is_told || k->attempt == n->attempt;
    }
}

/* False: the disk is full. */
static bool save(struct sim *s, struct sim_node *n)
{
    struct sim_job *j = n->truth;
    if (sim_disk_faults(s->disk)->full || j->num_checkpoints == SIM_CHECKPOINTS_MAX) {
        sim_trace(s->now_us, "job %lld can't save at step %lld", (long long)n->job,
                  (long long)n->step);
        return false;
    }
    struct sim_checkpoint *k = &j->checkpoints[j->num_checkpoints];
    snprintf(k->dir, sizeof k->dir, "ckpt/step-%08lld-a%d", (long long)n->step, n->attempt);
    if (find_checkpoint(j, k->dir) >= 0) {
        return true;
    }
    k->step = n->step;
    k->rotten = sim_strikes(s, s->profile->damage);
    j->num_checkpoints++;
    WorkerUp *up = new_up(WORKER_UP__BODY_CHECKPOINT_DONE);
    up->checkpoint_done = msg_new(&checkpoint_done__descriptor);
    MSG_SET(up->checkpoint_done, step, n->step);
    msg_text(&up->checkpoint_done->dir, k->dir);
    sim_node_report(n, up);
    k->attempt = n->attempt;
    k->seq = n->last_seq;
    return true;
}

/* ---- ends ---- */

void sim_node_end(struct sim *s, struct sim_node *n)
{
    WorkerUp *up = new_up(WORKER_UP__BODY_ATTEMPT_END);
    AttemptEnd *end = up->attempt_end = msg_new(&attempt_end__descriptor);
    MSG_SET(end, finished, n->finished);
    MSG_SET(end, paused, n->paused);
    MSG_SET(end, cancelled, n->cancelled && !n->finished && !n->paused);
    MSG_SET(end, retryable, n->retryable);
    msg_text(&end->message, n->message);
    n->ended = true;
    sim_trace(s->now_us, "job %lld attempt %d ends: %s", (long long)n->job, n->attempt,
              n->finished ? "finished"
              : n->paused ? "paused"
                          : n->message);
    if (!n->finished && !n->paused) {
        n->truth->num_failures++;
        n->truth->failed_for_good = n->truth->failed_for_good || !n->retryable;
    }
    sim_node_report(n, up);
    sim_node_maybe_leave(s, n);
}

static void gang_is_gone(struct sim *s, void *arg, int64_t id)
{
    struct sim_node *n = arg;
    if (id != n->gang_id) {
        return;
    }
    if (s->now_us < n->stuck_until_us) {
        sim_at(s, n->stuck_until_us + 1, gang_is_gone, NULL, n, id);
        return;
    }
    sim_trace(s->now_us, "job %lld attempt %d: its ranks are gone", (long long)n->job, n->attempt);
    n->gang = GANG_GONE;
    if (n->alive && !n->ended) {
        sim_node_end(s, n);
    } else if (!n->alive) {
        n->truth->num_failures++;
    }
    sim_node_maybe_leave(s, n);
}

void sim_node_stop_gang(struct sim *s, struct sim_node *n, int64_t most_us)
{
    n->gang = GANG_STOPS;
    n->gang_id++;
    sim_after(s, sim_rng_delay(&s->rng, 10, most_us), gang_is_gone, NULL, n, n->gang_id);
}

void sim_node_fail_rank(struct sim *s, struct sim_node *n, bool retryable, const char *message)
{
    if (n->gang != GANG_RUNS && n->gang != GANG_HANGS) {
        return;
    }
    sim_trace(s->now_us, "job %lld attempt %d: %s", (long long)n->job, n->attempt, message);
    n->retryable = retryable;
    snprintf(n->message, sizeof n->message, "%s", message);
    WorkerUp *up = new_up(WORKER_UP__BODY_RANK_EXIT);
    up->rank_exit = msg_new(&rank_exit__descriptor);
    MSG_SET(up->rank_exit, rank, 0);
    MSG_SET(up->rank_exit, kind, EXIT_SIGNAL);
    MSG_SET(up->rank_exit, code, 9);
    msg_text(&up->rank_exit->message, message);
    sim_node_report(n, up);
    sim_node_stop_gang(s, n, 3000000);
}

static void stood_still(struct sim *s, void *arg, int64_t id)
{
    struct sim_node *n = arg;
    if (id == n->gang_id && n->alive) {
        sim_node_fail_rank(s, n, true, "rank 0 stood still for 30 s");
    }
}

void sim_node_hang(struct sim *s, struct sim_node *n)
{
    if (n->gang == GANG_RUNS) {
        sim_trace(s->now_us, "job %lld attempt %d hangs", (long long)n->job, n->attempt);
        n->gang = GANG_HANGS;
        n->gang_id++;
        sim_after(s, STOPPED_US, stood_still, NULL, n, n->gang_id);
    }
}

/* ---- steps ---- */

static void report_step(struct sim_node *n)
{
    WorkerUp *up = new_up(WORKER_UP__BODY_METRICS);
    StepMetrics *m = up->metrics = msg_new(&step_metrics__descriptor);
    MSG_SET(m, job_id, n->job);
    MSG_SET(m, attempt, n->attempt);
    MSG_SET(m, step, n->step);
    MSG_SET(m, loss, sim_node_loss(n->truth, n->step));
    sim_node_report(n, up);
}

static void do_step(struct sim *s, void *arg, int64_t id)
{
    struct sim_node *n = arg;
    if (id != n->gang_id || n->gang != GANG_RUNS || !n->alive) {
        return;
    }
    if (n->step < n->total_steps) {
        n->step++;
        report_step(n);
        sim_check_step(s, n);
    }
    bool last = n->step >= n->total_steps;
    bool stops = n->stop_at >= 0 && n->step >= n->stop_at && !last && !n->stubborn;
    if (last || stops || n->step % n->truth->interval == 0) {
        bool saved = save(s, n);
        stops = stops && saved; /* else at the next step */
    }
    if (last) {
        WorkerUp *up = new_up(WORKER_UP__BODY_EXPORT_DONE);
        up->export_done = msg_new(&export_done__descriptor);
        msg_text(&up->export_done->dir, "export");
        sim_node_report(n, up);
        n->finished = n->truth->has_finished = true;
        s->seen.finished++;
        sim_node_stop_gang(s, n, 200000);
    } else if (stops) {
        n->paused = true;
        sim_node_stop_gang(s, n, 200000);
    } else {
        sim_after(s, n->step_us / 2 + sim_rng_between(&s->rng, 0, n->step_us), do_step, NULL, n,
                  id);
    }
}

void sim_node_start_gang(struct sim *s, struct sim_node *n, const struct sim_down *down)
{
    n->gang = GANG_RUNS;
    n->gang_id++;
    n->devices = down->devices;
    n->total_steps = down->total_steps;
    n->step = down->number;
    n->step_us = sim_rng_between(&s->rng, 20000, 600000);
    sim_trace(s->now_us, "job %lld attempt %d trains from step %lld on devices %llx",
              (long long)n->job, n->attempt, (long long)n->step, (unsigned long long)n->devices);
    sim_check_gang(s, n);
    sim_check_resume(s, n);
    int32_t k = *down->resume_dir ? find_checkpoint(n->truth, down->resume_dir) : -1;
    if (*down->resume_dir && (k < 0 || n->truth->checkpoints[k].step != down->number)) {
        sim_fail(s, "job %lld attempt %d resumes from %s at step %lld, which was never saved",
                 (long long)n->job, n->attempt, down->resume_dir, (long long)down->number);
        return;
    }
    if (k >= 0 && n->truth->checkpoints[k].rotten) {
        n->truth->checkpoints[k].damaged = true;
        sim_node_fail_rank(s, n, true, "the checkpoint is damaged");
        return;
    }
    sim_after(s, sim_rng_delay(&s->rng, 10000, 3000000), do_step, NULL, n, n->gang_id);
}
