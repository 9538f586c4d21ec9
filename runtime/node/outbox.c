#include "runtime/node/outbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "runtime/node/outbox_state.h"

/* ---- parcels ----------------------------------------------------------------------------------
 */

struct parcel *outbox_new_parcel(int64_t seq, const void *body, size_t len)
{
    struct parcel *p = malloc(sizeof *p + len);
    ASSERT(p);
    p->next = NULL;
    p->seq = seq;
    p->urgent = false;
    p->len = len;
    if (body) {
        memcpy(p->body, body, len);
    }
    return p;
}

void outbox_push(struct parcels *list, struct parcel *p)
{
    p->next = NULL;
    *list->end = p;
    list->end = &p->next;
    list->num_bytes += sizeof *p + p->len;
}

struct parcel *outbox_pop(struct parcels *list)
{
    struct parcel *p = list->first;
    list->first = p->next;
    list->end = list->first ? list->end : &list->first;
    list->num_bytes -= sizeof *p + p->len;
    return p;
}

static void free_parcels(struct parcels *list)
{
    while (list->first) {
        free(outbox_pop(list));
    }
}

static void forget(struct parcel **secret)
{
    if (*secret) {
        explicit_bzero((*secret)->body, (*secret)->len);
        free(*secret);
        *secret = NULL;
    }
}

/* ---- life -------------------------------------------------------------------------------------
 */

int outbox_new(struct outbox **out, const struct outbox_options *options, struct error *err)
{
    struct outbox *o = calloc(1, sizeof *o);
    if (!o) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    o->options = *options;
    o->window.end = &o->window.first;
    o->inbox.end = &o->inbox.first;
    o->window_end = 1;
    o->interrupted = true;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->filled, NULL);
    pthread_cond_init(&o->work, &attr);
    pthread_cond_init(&o->unsynced, &attr);
    pthread_condattr_destroy(&attr);
    if (outbox_start_disk(o, err) != 0) {
        free(o);
        return -1;
    }
    *out = o;
    return 0;
}

void outbox_free(struct outbox *o)
{
    if (!o) {
        return;
    }
    outbox_stop_disk(o);
    if (o->spool && o->acked_seq == o->last_seq) {
        spool_remove(o->spool);
    } else {
        spool_free(o->spool);
    }
    free_parcels(&o->window);
    free_parcels(&o->inbox);
    for (int i = 0; i < OUTBOX_RANKS_MAX; i++) {
        free(o->latest[i]);
    }
    forget(&o->comm_id);
    pthread_cond_destroy(&o->unsynced);
    pthread_cond_destroy(&o->work);
    pthread_cond_destroy(&o->filled);
    pthread_mutex_destroy(&o->lock);
    free(o);
}

/* ---- room -------------------------------------------------------------------------------------
 */

static bool is_over_bound(const struct outbox *o)
{
    return o->window.num_bytes + o->inbox.num_bytes > o->options.max_bytes;
}

void outbox_wake_owner(struct outbox *o)
{
    if (o->options.wake) {
        o->options.wake(o->options.arg);
    }
}

void outbox_tell_room(struct outbox *o)
{
    if (o->told_full && !is_over_bound(o)) {
        o->told_full = false;
        outbox_wake_owner(o);
    }
}

/* ---- in ---------------------------------------------------------------------------------------
 */

static struct parcel *pack(struct outbox *o, WorkerUp *message, int64_t seq)
{
    message->has_job_id = message->has_attempt = message->has_seq = 1;
    message->job_id = o->options.job_id;
    message->attempt = o->options.attempt;
    message->seq = seq;
    struct parcel *p = outbox_new_parcel(seq, NULL, worker_up__get_packed_size(message));
    worker_up__pack(message, p->body);
    p->urgent = message->body_case == WORKER_UP__BODY_CHECKPOINT_DONE ||
                message->body_case == WORKER_UP__BODY_RANK_EXIT ||
                message->body_case == WORKER_UP__BODY_ATTEMPT_END;
    return p;
}

void outbox_put(struct outbox *o, WorkerUp *message)
{
    pthread_mutex_lock(&o->lock);
    outbox_push(&o->inbox, pack(o, message, ++o->last_seq));
    pthread_cond_signal(&o->work);
    pthread_mutex_unlock(&o->lock);
}

void outbox_put_progress(struct outbox *o, const Progress *progress)
{
    if (progress->rank < 0 || progress->rank >= OUTBOX_RANKS_MAX) {
        return;
    }
    Progress copy = *progress;
    WorkerUp up = WORKER_UP__INIT;
    up.body_case = WORKER_UP__BODY_PROGRESS;
    up.progress = &copy;
    pthread_mutex_lock(&o->lock);
    free(o->latest[progress->rank]);
    o->latest[progress->rank] = pack(o, &up, 0);
    pthread_cond_signal(&o->filled);
    pthread_mutex_unlock(&o->lock);
}

void outbox_put_comm_id(struct outbox *o, const CommId *id)
{
    WorkerUp up = WORKER_UP__INIT;
    up.body_case = WORKER_UP__BODY_COMM_ID;
    up.comm_id = (CommId *)(uintptr_t)id;
    pthread_mutex_lock(&o->lock);
    forget(&o->comm_id);
    o->comm_id = pack(o, &up, 0);
    o->comm_id_unsent = true;
    pthread_cond_signal(&o->filled);
    pthread_mutex_unlock(&o->lock);
}

void outbox_comm_id_heard(struct outbox *o)
{
    pthread_mutex_lock(&o->lock);
    forget(&o->comm_id);
    o->comm_id_unsent = false;
    pthread_mutex_unlock(&o->lock);
}

void outbox_put_note(struct outbox *o, const char *text)
{
    NodeNote note = NODE_NOTE__INIT;
    note.message = (char *)(uintptr_t)text;
    WorkerUp up = WORKER_UP__INIT;
    up.body_case = WORKER_UP__BODY_NOTE;
    up.note = &note;
    outbox_put(o, &up);
}

/* ---- out --------------------------------------------------------------------------------------
 */

static struct parcel *take_latest(struct outbox *o)
{
    for (int i = 0; i < OUTBOX_RANKS_MAX; i++) {
        if (o->latest[i]) {
            struct parcel *p = o->latest[i];
            o->latest[i] = NULL;
            return p;
        }
    }
    return NULL;
}

static WorkerUp *unpack(const struct parcel *p)
{
    WorkerUp *up = worker_up__unpack(NULL, p->len, p->body);
    ASSERT(up); /* we packed it */
    return up;
}

WorkerUp *outbox_take(struct outbox *o)
{
    WorkerUp *up = NULL;
    pthread_mutex_lock(&o->lock);
    while (!up && !o->interrupted) {
        struct parcel *latest;
        if (o->unsent) {
            up = unpack(o->unsent);
            o->sent_seq = o->unsent->seq > o->sent_seq ? o->unsent->seq : o->sent_seq;
            o->unsent = o->unsent->next;
        } else if (o->comm_id_unsent) {
            up = unpack(o->comm_id);
            o->comm_id_unsent = false;
        } else if ((latest = take_latest(o)) != NULL) {
            up = unpack(latest);
            free(latest);
        } else {
            pthread_cond_wait(&o->filled, &o->lock);
        }
    }
    pthread_mutex_unlock(&o->lock);
    return up;
}

void outbox_rewind(struct outbox *o)
{
    pthread_mutex_lock(&o->lock);
    o->unsent = o->window.first;
    o->comm_id_unsent = o->comm_id != NULL;
    o->interrupted = false;
    pthread_mutex_unlock(&o->lock);
}

void outbox_interrupt(struct outbox *o)
{
    pthread_mutex_lock(&o->lock);
    o->interrupted = true;
    pthread_cond_broadcast(&o->filled);
    pthread_mutex_unlock(&o->lock);
}

void outbox_ack(struct outbox *o, int64_t seq)
{
    pthread_mutex_lock(&o->lock);
    if (seq > o->sent_seq) {
        log_warn("the controller acknowledges report %lld; %lld were sent", (long long)seq,
                 (long long)o->sent_seq);
        seq = o->sent_seq;
    }
    while (o->window.first && o->window.first->seq <= seq) {
        struct parcel *p = outbox_pop(&o->window);
        o->unsent = o->unsent == p ? o->window.first : o->unsent;
        free(p);
    }
    o->acked_seq = seq > o->acked_seq ? seq : o->acked_seq;
    outbox_tell_room(o);
    pthread_cond_signal(&o->work);
    pthread_mutex_unlock(&o->lock);
}

/* ---- state ------------------------------------------------------------------------------------
 */

bool outbox_is_full(struct outbox *o)
{
    pthread_mutex_lock(&o->lock);
    bool full = o->told_full = is_over_bound(o);
    pthread_mutex_unlock(&o->lock);
    return full;
}

bool outbox_is_settled(struct outbox *o)
{
    pthread_mutex_lock(&o->lock);
    bool settled = o->acked_seq == o->last_seq;
    pthread_mutex_unlock(&o->lock);
    return settled;
}

bool outbox_is_broken(struct outbox *o, char *why, size_t size)
{
    pthread_mutex_lock(&o->lock);
    bool broken = o->broken;
    if (broken) {
        snprintf(why, size, "%s", o->why);
    }
    pthread_mutex_unlock(&o->lock);
    return broken;
}

int64_t outbox_acked_seq(struct outbox *o)
{
    pthread_mutex_lock(&o->lock);
    int64_t seq = o->acked_seq;
    pthread_mutex_unlock(&o->lock);
    return seq;
}
