#include <stdio.h>

#include "base/log.h"
#include "runtime/comm/comm_provider.h"
#include "runtime/node/node_state.h"

/* ---- ranks ------------------------------------------------------------------------------------
 */

static void take_memory(struct node *n, int32_t rank, const MemoryUse *use)
{
    if (use != NULL && use->process_bytes > n->memory.process_bytes) {
        n->memory = *use;
        n->memory_rank = rank;
    }
}

/* Kept with the job, beside what it was given its devices for. */
static void put_memory(struct node *n)
{
    char text[160];
    snprintf(text, sizeof text, "memory: planned %.1f MB a rank, used at most %.1f MB (rank %d)",
             (double)n->memory.planned_bytes / 1e6, (double)n->memory.process_bytes / 1e6,
             (int)n->memory_rank);
    log_info("%s", text);
    outbox_put_note(n->outbox, text);
}

bool node_is_usable_id(const CommId *id)
{
    return id->has_id && id->id.len > 0 && id->id.len <= COMM_ID_MAX;
}

/* Once, from the rank that makes it. What it is stays unsaid. */
static void take_comm_id(struct node *n, int32_t rank, const CommId *id)
{
    if (rank != 0 || n->has_comm_id || !node_is_usable_id(id)) {
        log_warn("rank %d sent an id for communicators, which isn't taken: %s", (int)rank,
                 rank != 0                ? "rank 0 makes it"
                 : !node_is_usable_id(id) ? "it has no usable size"
                                          : "there is one already");
        return;
    }
    n->has_comm_id = true;
    outbox_put_comm_id(n->outbox, id);
}

void node_on_up(void *arg, int32_t rank, const RankUp *message)
{
    struct node *n = arg;
    WorkerUp up = WORKER_UP__INIT;
    switch (message->body_case) {
    case RANK_UP__BODY_PROGRESS: {
        Progress progress = *message->progress;
        take_memory(n, rank, progress.memory);
        n->num_measured += progress.memory != NULL;
        if (progress.memory != NULL && n->num_measured == n->num_ranks && !n->ended) {
            put_memory(n);
        }
        progress.has_rank = 1;
        progress.rank = rank;
        outbox_put_progress(n->outbox, &progress);
        return;
    }
    case RANK_UP__BODY_METRICS:
        message->metrics->has_job_id = message->metrics->has_attempt = 1;
        message->metrics->job_id = n->ticket->job_id;
        message->metrics->attempt = n->ticket->attempt;
        up.body_case = WORKER_UP__BODY_METRICS;
        up.metrics = message->metrics;
        break;
    case RANK_UP__BODY_CHECKPOINT_DONE:
        up.body_case = WORKER_UP__BODY_CHECKPOINT_DONE;
        up.checkpoint_done = message->checkpoint_done;
        break;
    case RANK_UP__BODY_EXPORT_DONE:
        up.body_case = WORKER_UP__BODY_EXPORT_DONE;
        up.export_done = message->export_done;
        break;
    case RANK_UP__BODY_COMM_ID:
        take_comm_id(n, rank, message->comm_id);
        return;
    default:
        return;
    }
    outbox_put(n->outbox, &up);
}

void node_on_exit(void *arg, const RankExit *gone)
{
    struct node *n = arg;
    WorkerUp up = WORKER_UP__INIT;
    up.body_case = WORKER_UP__BODY_RANK_EXIT;
    up.rank_exit = (RankExit *)(uintptr_t)gone;
    log_info("rank %d: %s", (int)gone->rank, gone->message);
    outbox_put(n->outbox, &up);
}

/* ---- devices ---- */

void node_on_device_event(void *arg, const DeviceEvent *e)
{
    struct node *n = arg;
    WorkerUp up = WORKER_UP__INIT;
    up.body_case = WORKER_UP__BODY_DEVICE_EVENT;
    up.device_event = (DeviceEvent *)(uintptr_t)e;
    outbox_put(n->outbox, &up);
}

void node_on_device_note(void *arg, const char *words)
{
    struct node *n = arg;
    outbox_put_note(n->outbox, words);
}

/* ---- the end ---- */

void node_put_end(struct node *n, AttemptEnd *end)
{
    WorkerUp up = WORKER_UP__INIT;
    up.body_case = WORKER_UP__BODY_ATTEMPT_END;
    up.attempt_end = end;
    end->has_cancelled = 1;
    end->cancelled = n->cancelled && !end->finished && !end->paused;
    log_info("attempt %d ended: %s", (int)n->ticket->attempt,
             end->finished ? "finished"
             : end->paused ? "paused"
                           : end->message);
    outbox_put(n->outbox, &up);
    n->ended = true;
}

void node_end_early(struct node *n, const char *why, bool retryable)
{
    AttemptEnd end = ATTEMPT_END__INIT;
    end.message = (char *)(uintptr_t)why;
    end.has_retryable = 1;
    end.retryable = retryable;
    node_put_end(n, &end);
}
