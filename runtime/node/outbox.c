#include "runtime/node/outbox.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define MOST_RANKS 256

struct parcel {
    struct parcel *next;
    int64_t seq;
    size_t len;
    uint8_t body[];
};

struct outbox {
    int64_t job_id;
    int32_t attempt;
    size_t max_bytes;
    pthread_mutex_t lock;
    pthread_cond_t filled;
    /* Under lock from here on. */
    struct parcel *first, **end;       /* unacknowledged, by number */
    struct parcel *unsent;             /* the first of those that this stream hasn't carried */
    struct parcel *latest[MOST_RANKS]; /* progress of each rank, not yet sent */
    struct parcel *note;
    size_t num_bytes;
    int64_t last_seq, sent_seq, acked_seq;
    bool interrupted;
};

int outbox_new(struct outbox **out, int64_t job_id, int32_t attempt, size_t max_bytes)
{
    struct outbox *o = calloc(1, sizeof *o);
    if (!o) {
        return -1;
    }
    o->job_id = job_id;
    o->attempt = attempt;
    o->max_bytes = max_bytes;
    o->end = &o->first;
    o->interrupted = true;
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->filled, NULL);
    *out = o;
    return 0;
}

void outbox_free(struct outbox *o)
{
    if (!o) {
        return;
    }
    while (o->first) {
        struct parcel *p = o->first;
        o->first = p->next;
        free(p);
    }
    for (int i = 0; i < MOST_RANKS; i++) {
        free(o->latest[i]);
    }
    free(o->note);
    pthread_cond_destroy(&o->filled);
    pthread_mutex_destroy(&o->lock);
    free(o);
}

/* ---- in ---------------------------------------------------------------------------------------
 */

static struct parcel *pack(struct outbox *o, WorkerUp *message, int64_t seq)
{
    message->has_job_id = message->has_attempt = message->has_seq = 1;
    message->job_id = o->job_id;
    message->attempt = o->attempt;
    message->seq = seq;
    size_t len = worker_up__get_packed_size(message);
    struct parcel *p = malloc(sizeof *p + len);
    ASSERT(p);
    p->next = NULL;
    p->seq = seq;
    p->len = len;
    worker_up__pack(message, p->body);
    return p;
}

void outbox_put(struct outbox *o, WorkerUp *message)
{
    pthread_mutex_lock(&o->lock);
    struct parcel *p = pack(o, message, ++o->last_seq);
    *o->end = p;
    o->end = &p->next;
    o->unsent = o->unsent ? o->unsent : p;
    o->num_bytes += sizeof *p + p->len;
    pthread_cond_signal(&o->filled);
    pthread_mutex_unlock(&o->lock);
}

static void replace(struct outbox *o, struct parcel **at, WorkerUp *message)
{
    pthread_mutex_lock(&o->lock);
    free(*at);
    *at = pack(o, message, 0);
    pthread_cond_signal(&o->filled);
    pthread_mutex_unlock(&o->lock);
}

void outbox_put_progress(struct outbox *o, const Progress *progress)
{
    if (progress->rank < 0 || progress->rank >= MOST_RANKS) {
        return;
    }
    Progress copy = *progress;
    WorkerUp up = WORKER_UP__INIT;
    up.body_case = WORKER_UP__BODY_PROGRESS;
    up.progress = &copy;
    replace(o, &o->latest[progress->rank], &up);
}

void outbox_put_note(struct outbox *o, const char *text)
{
    NodeNote note = NODE_NOTE__INIT;
    note.message = (char *)(uintptr_t)text;
    WorkerUp up = WORKER_UP__INIT;
    up.body_case = WORKER_UP__BODY_NOTE;
    up.note = &note;
    replace(o, &o->note, &up);
}

/* ---- out --------------------------------------------------------------------------------------
 */

static struct parcel *take_latest(struct outbox *o)
{
    for (int i = 0; i < MOST_RANKS; i++) {
        if (o->latest[i]) {
            struct parcel *p = o->latest[i];
            o->latest[i] = NULL;
            return p;
        }
    }
    struct parcel *p = o->note;
    o->note = NULL;
    return p;
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
    o->unsent = o->first;
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
    seq = seq < o->sent_seq ? seq : o->sent_seq;
    while (o->first && o->first->seq <= seq) {
        struct parcel *p = o->first;
        o->first = p->next;
        o->end = o->first ? o->end : &o->first;
        o->unsent = o->unsent == p ? o->first : o->unsent;
        o->num_bytes -= sizeof *p + p->len;
        free(p);
    }
    o->acked_seq = seq > o->acked_seq ? seq : o->acked_seq;
    pthread_mutex_unlock(&o->lock);
}

/* ---- state ------------------------------------------------------------------------------------
 */

bool outbox_is_full(struct outbox *o)
{
    pthread_mutex_lock(&o->lock);
    bool full = o->num_bytes > o->max_bytes;
    pthread_mutex_unlock(&o->lock);
    return full;
}

bool outbox_is_settled(struct outbox *o)
{
    pthread_mutex_lock(&o->lock);
    bool settled = !o->first;
    pthread_mutex_unlock(&o->lock);
    return settled;
}

int64_t outbox_acked_seq(struct outbox *o)
{
    pthread_mutex_lock(&o->lock);
    int64_t seq = o->acked_seq;
    pthread_mutex_unlock(&o->lock);
    return seq;
}
