#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "runtime/comm/comm_host.h"
#include "runtime/node/node_state.h"
#include "runtime/node/sweep.h"

#define GRACE_MOST_MS 600000

/* ---- start ------------------------------------------------------------------------------------
 */

static void on_other_child(void *arg, pid_t pid, int status)
{
    struct node *n = arg;
    health_gone(n->health, pid, status);
}

static void on_last_rank(void *arg, bool failed)
{
    struct node *n = arg;
    health_finish(n->health, failed && !n->cancelled);
}

static int make_gang(struct node *n, const Start *start, struct error *err)
{
    char program[PATH_MAX], log_dir[PATH_MAX];
    if (!start->plan || start->plan->n_placement < 1) {
        return error_set(err, ERR_INVALID_ARGUMENT, "the controller sent no usable plan");
    }
    if (!fs_join(program, sizeof program, n->ticket->bin_dir, "tandem-rank") ||
        snprintf(log_dir, sizeof log_dir, "%s/logs/attempt-%d", n->ticket->job_dir,
                 (int)n->ticket->attempt) >= (int)sizeof log_dir) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: path is too long", n->ticket->job_dir);
    }
    if (fs_mkdirs(log_dir, 0770, err) != 0 || sweep_job(n->ticket->job_dir, err) != 0) {
        return -1;
    }
    struct gang_options options = {
        .job_id = n->ticket->job_id,
        .attempt = n->ticket->attempt,
        .num_ranks = start->plan->n_placement > COMM_HOST_MAX_RANKS
                         ? COMM_HOST_MAX_RANKS + 1
                         : (int32_t)start->plan->n_placement,
        .shared_bytes = start->plan->memory ? start->plan->memory->shared_bytes : 0,
        .program = program,
        .job_dir = n->ticket->job_dir,
        .log_dir = log_dir,
        .host = n->ticket->node,
        .on_up = node_on_up,
        .on_exit = node_on_exit,
        .on_other = on_other_child,
        .on_last = on_last_rank,
        .arg = n,
    };
    struct health_options health = {
        .bin_dir = n->ticket->bin_dir,
        .plan = start->plan,
        .on_event = node_on_device_event,
        .on_note = node_on_device_note,
        .arg = n,
    };
    n->health = health_start(&health);
    options.pins = health_pins(n->health);
    if (gang_new(&n->gang, &options, err) != 0) {
        return -1;
    }
    n->num_ranks = options.num_ranks;
    n->fds = realloc(n->fds, (size_t)(NODE_OWN_FDS + gang_num_fds(n->gang)) * sizeof *n->fds);
    ASSERT(n->fds);
    return 0;
}

static void send_stop(struct node *n, int64_t step)
{
    StopAtStep stop = STOP_AT_STEP__INIT;
    stop.has_step = 1;
    stop.step = step;
    RankDown down = RANK_DOWN__INIT;
    down.body_case = RANK_DOWN__BODY_STOP_AT_STEP;
    down.stop_at_step = &stop;
    gang_send(n->gang, &down);
}

static void take_start(struct node *n, const Start *start)
{
    struct error err = {0};
    if (n->gang || n->ended) {
        return; /* said again after a broken stream */
    }
    if (make_gang(n, start, &err) != 0) {
        node_end_early(n, err.text,
                       err.code != ERR_INVALID_ARGUMENT && err.code != ERR_PERMISSION_DENIED);
        return;
    }
    log_info("job %lld attempt %d: starting %zu rank%s", (long long)n->ticket->job_id,
             (int)n->ticket->attempt, start->plan->n_placement,
             start->plan->n_placement == 1 ? "" : "s");
    gang_start(n->gang, start);
    if (n->stop_at_step >= 0) {
        send_stop(n, n->stop_at_step);
    }
}

/* ---- commands ---------------------------------------------------------------------------------
 */

void node_stop(struct node *n, int64_t grace_ms, const char *reason)
{
    if (n->gang) {
        gang_stop(n->gang, grace_ms < GRACE_MOST_MS ? grace_ms : GRACE_MOST_MS, reason);
    } else if (!n->ended && !n->abandoned) {
        node_end_early(n, reason, true);
    }
}

static void take_cancel(struct node *n, const CancelAttempt *cancel)
{
    const char *reason = cancel->reason ? cancel->reason : "";
    bool said = strncmp(reason, "cancelled", strlen("cancelled")) == 0;
    snprintf(n->reason, sizeof n->reason, "%s%s%.400s", said ? "" : "cancelled",
             said || !reason[0] ? "" : ": ", reason);
    log_info("%s", n->reason);
    n->cancelled = true;
    node_stop(n, cancel->grace_ms, n->reason);
}

void node_abandon(struct node *n, const char *why)
{
    if (n->abandoned) {
        return;
    }
    snprintf(n->reason, sizeof n->reason, "%s", why);
    log_error("job %lld attempt %d: %s", (long long)n->ticket->job_id, (int)n->ticket->attempt,
              why);
    n->abandoned = true;
    node_stop(n, 1000, n->reason);
    n->ended = n->ended || !n->gang;
}

/* It may come again after a broken stream. */
static void give_comm_id(struct node *n, CommId *id)
{
    outbox_comm_id_heard(n->outbox);
    if (!n->gang || n->gave_comm_id) {
        return;
    }
    if (!node_is_usable_id(id)) {
        log_warn("the controller sent an id for communicators that has no usable size");
        return;
    }
    RankDown down = RANK_DOWN__INIT;
    down.body_case = RANK_DOWN__BODY_COMM_ID;
    down.comm_id = id;
    gang_send(n->gang, &down);
    n->gave_comm_id = true;
}

static void take_event(struct node *n, const struct attach_event *e)
{
    char why[600];
    RankDown down = RANK_DOWN__INIT;
    if (!e->command) {
        snprintf(why, sizeof why, "the controller refuses this attempt: %s", e->refusal);
        node_abandon(n, why);
        return;
    }
    switch (e->command->body_case) {
    case WORKER_DOWN__BODY_START:
        take_start(n, e->command->start);
        break;
    case WORKER_DOWN__BODY_CHECKPOINT:
        down.body_case = RANK_DOWN__BODY_CHECKPOINT;
        down.checkpoint = e->command->checkpoint;
        if (n->gang) {
            gang_send(n->gang, &down);
        }
        break;
    case WORKER_DOWN__BODY_STOP_AT_STEP:
        n->stop_at_step = e->command->stop_at_step->step;
        if (n->gang) {
            send_stop(n, n->stop_at_step);
        }
        break;
    case WORKER_DOWN__BODY_COMM_ID:
        give_comm_id(n, e->command->comm_id);
        break;
    case WORKER_DOWN__BODY_CANCEL:
        take_cancel(n, e->command->cancel);
        break;
    default:
        break;
    }
}

void node_take_mail(struct node *n)
{
    struct mailbox_node *node = mailbox_take(n->mailbox, 0);
    while (node) {
        struct attach_event *e = (struct attach_event *)node;
        node = node->next;
        take_event(n, e);
        attach_event_free(e);
    }
}
