#include "kernels/host/stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define RING_SLOTS 256

struct event {
    uint64_t num_records; /* only the device's user */
    pthread_mutex_t lock;
    pthread_cond_t fired;
    uint64_t last_fired; /* number of the latest record that fired; guarded by lock */
    bool failed;         /* the stream of that record had failed */
    struct error error;
};

enum slot_kind { SLOT_WORK, SLOT_RECORD, SLOT_WAIT };

struct slot {
    enum slot_kind kind;
    struct host_work work;
    struct event *event;
    uint64_t record;
    _Alignas(16) unsigned char args[HOST_ARGS_BYTES];
};

struct stream {
    enum stream_kind kind;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;           /* guarded by lock, as all below */
    bool failed;         /* written by the stream's thread and by sync when the ring is empty */
    struct error error;  /* the first since the last sync */
    uint64_t num_pushed; /* slots in use: num_done..num_pushed-1 */
    uint64_t num_done;
    struct slot ring[];
};

static int work_run(const struct host_work *w, struct error *err)
{
    if (w->loop) {
        w->loop(w->pool, w->args);
        return 0;
    }
    /* A closure may change its arguments: it owns the copy. */
    _Alignas(16) unsigned char args[DEVICE_CALL_BYTES];
    memcpy(args, w->args, w->bytes);
    struct error inner = {0};
    if (w->call(args, &inner) != 0) {
        if (err) {
            *err = inner;
        }
        return error_wrap(err, "%s", w->op);
    }
    return 0;
}

static void event_fire(struct event *e, uint64_t record, const struct error *error)
{
    pthread_mutex_lock(&e->lock);
    if (record > e->last_fired) {
        e->last_fired = record;
        e->failed = error != NULL;
        if (error) {
            e->error = *error;
        }
        pthread_cond_broadcast(&e->fired);
    }
    pthread_mutex_unlock(&e->lock);
}

static int event_await(struct event *e, uint64_t record, struct error *err)
{
    pthread_mutex_lock(&e->lock);
    while (e->last_fired < record) {
        pthread_cond_wait(&e->fired, &e->lock);
    }
    bool failed = e->failed;
    if (failed && err) {
        *err = e->error;
    }
    pthread_mutex_unlock(&e->lock);
    return failed ? -1 : 0;
}

/* The stream's thread runs one slot; the slot is its own until num_done moves. */
static void slot_run(struct stream *s, struct slot *slot)
{
    struct error error = {0};
    int rc = 0;
    switch (slot->kind) {
    case SLOT_WORK:
        rc = s->failed ? 0 : work_run(&slot->work, &error);
        break;
    case SLOT_RECORD:
        event_fire(slot->event, slot->record, s->failed ? &s->error : NULL);
        break;
    case SLOT_WAIT:
        rc = event_await(slot->event, slot->record, &error);
        break;
    }
    if (rc != 0 && !s->failed) {
        pthread_mutex_lock(&s->lock);
        s->failed = true;
        s->error = error;
        pthread_mutex_unlock(&s->lock);
    }
}

static void *stream_main(void *arg)
{
    struct stream *s = arg;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->num_done == s->num_pushed && !s->stop) {
            pthread_cond_wait(&s->changed, &s->lock);
        }
        if (s->num_done == s->num_pushed) {
            break;
        }
        struct slot *slot = &s->ring[s->num_done % RING_SLOTS];
        pthread_mutex_unlock(&s->lock);
        slot_run(s, slot);
        pthread_mutex_lock(&s->lock);
        s->num_done++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int host_stream_new(struct stream **out, enum stream_kind kind, struct error *err)
{
    size_t num_slots = kind == STREAM_QUEUE ? RING_SLOTS : 0;
    struct stream *s = calloc(1, sizeof *s + num_slots * sizeof(struct slot));
    if (!s) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "stream: no memory");
    }
    s->kind = kind;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (kind == STREAM_QUEUE) {
        int rc = pthread_create(&s->thread, NULL, stream_main, s);
        if (rc != 0) {
            s->kind = STREAM_INLINE;
            host_stream_free(s);
            return error_errno(err, rc, "stream: thread");
        }
    }
    *out = s;
    return 0;
}

void host_stream_free(struct stream *s)
{
    if (!s) {
        return;
    }
    if (s->kind == STREAM_QUEUE) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_broadcast(&s->changed);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Waits for room and hands the slot's content over. */
static void push(struct stream *s, enum slot_kind kind, const struct host_work *work,
                 struct event *e, uint64_t record)
{
    pthread_mutex_lock(&s->lock);
    while (s->num_pushed - s->num_done == RING_SLOTS) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    struct slot *slot = &s->ring[s->num_pushed % RING_SLOTS];
    slot->kind = kind;
    slot->event = e;
    slot->record = record;
    if (work) {
        slot->work = *work;
        memcpy(slot->args, work->args, work->bytes);
        slot->work.args = slot->args;
        slot->work.pool = NULL; /* the device's threads are computation's */
    }
    s->num_pushed++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

int host_stream_submit(struct stream *s, const struct host_work *work, struct error *err)
{
    ASSERT(work->bytes <= (work->loop ? HOST_ARGS_BYTES : DEVICE_CALL_BYTES));
    if (s->kind == STREAM_INLINE) {
        return work_run(work, err);
    }
    push(s, SLOT_WORK, work, NULL, 0);
    return 0;
}

int host_stream_sync(struct stream *s, struct error *err)
{
    if (s->kind == STREAM_INLINE) {
        return 0;
    }
    pthread_mutex_lock(&s->lock);
    while (s->num_done != s->num_pushed) {
        pthread_cond_wait(&s->changed, &s->lock);
    }
    bool failed = s->failed;
    s->failed = false;
    if (failed && err) {
        *err = s->error;
    }
    pthread_mutex_unlock(&s->lock);
    return failed ? -1 : 0;
}

int host_event_new(struct event **out, struct error *err)
{
    struct event *e = calloc(1, sizeof *e);
    if (!e) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "event: no memory");
    }
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->fired, NULL);
    *out = e;
    return 0;
}

void host_event_free(struct event *e)
{
    if (!e) {
        return;
    }
    pthread_cond_destroy(&e->fired);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

int host_event_record(struct event *e, struct stream *s, struct error *err)
{
    (void)err;
    uint64_t record = ++e->num_records;
    if (s->kind == STREAM_INLINE) {
        event_fire(e, record, NULL);
    } else {
        push(s, SLOT_RECORD, NULL, e, record);
    }
    return 0;
}

int host_event_sync(struct event *e, struct error *err)
{
    return event_await(e, e->num_records, err);
}

int host_stream_wait(struct stream *s, struct event *e, struct error *err)
{
    if (s->kind == STREAM_INLINE) {
        return event_await(e, e->num_records, err);
    }
    push(s, SLOT_WAIT, NULL, e, e->num_records);
    return 0;
}
