#include "runtime/node/attach.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "proto/rpc_client.h"

#define BACKOFF_FIRST_MS 50
#define BACKOFF_MOST_MS 2000

struct attach {
    const LaunchTicket *ticket; /* borrowed, as the next two */
    struct outbox *outbox;
    struct mailbox *owner;
    struct rpc_channel *channel;
    char boot_id[64];
    int64_t start_time;
    _Atomic int64_t lease_until_ms;
    bool is_started;       /* reader only: a Start has come */
    bool greeted;          /* reader only: something came on the latest stream */
    uint64_t num_attempts; /* reader only */
    pthread_t reader;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct rpc_stream *stream; /* under lock: the live one, so that it can be cancelled */
    bool stopping;             /* under lock */
};

void attach_event_free(struct attach_event *e)
{
    if (e->command) {
        worker_down__free_unpacked(e->command, NULL);
    }
    free(e);
}

int64_t attach_lease_left_ms(struct attach *a)
{
    return atomic_load(&a->lease_until_ms) - clock_mono_ms();
}

/* ---- who we are -------------------------------------------------------------------------------
 */

static void read_boot_id(char *out, size_t size)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    out[0] = 0;
    if (f) {
        if (fgets(out, (int)size, f)) {
            out[strcspn(out, "\n")] = 0;
        }
        fclose(f);
    }
}

/* Field 22 of /proc/self/stat, counted behind the name, which may hold anything. */
static int64_t read_start_time(void)
{
    FILE *f = fopen("/proc/self/stat", "re");
    char line[1024];
    long long ticks = 0;
    if (!f) {
        return 0;
    }
    if (fgets(line, sizeof line, f)) {
        char *p = strrchr(line, ')');
        for (int field = 2; p && field < 22; field++) {
            p = strchr(p + 1, ' ');
        }
        ticks = p ? strtoll(p, NULL, 10) : 0;
    }
    fclose(f);
    return ticks;
}

static int send_hello(struct attach *a, struct rpc_stream *s, struct error *err)
{
    Hello hello = HELLO__INIT;
    hello.node = a->ticket->node;
    hello.boot_id = a->boot_id;
    hello.has_protocol = hello.has_pid = hello.has_start_time = 1;
    hello.has_acked_seq = hello.has_fresh = 1;
    hello.pid = (int32_t)getpid();
    hello.start_time = a->start_time;
    hello.acked_seq = outbox_acked_seq(a->outbox);
    hello.fresh = !a->is_started;
    WorkerUp up = WORKER_UP__INIT;
    up.has_job_id = up.has_attempt = 1;
    up.job_id = a->ticket->job_id;
    up.attempt = a->ticket->attempt;
    up.body_case = WORKER_UP__BODY_HELLO;
    up.hello = &hello;
    return rpc_stream_send(s, &up.base, err);
}

/* ---- one stream -------------------------------------------------------------------------------
 */

struct writer {
    struct attach *attach;
    struct rpc_stream *stream;
};

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    WorkerUp *up;
    while ((up = outbox_take(w->attach->outbox)) != NULL) {
        int rc = rpc_stream_send(w->stream, &up->base, NULL);
        worker_up__free_unpacked(up, NULL);
        if (rc != 0) {
            rpc_stream_cancel(w->stream); /* the reader hears why */
            break;
        }
    }
    return NULL;
}

static void take_down(struct attach *a, WorkerDown *down)
{
    if (!down->has_attempt || down->attempt != a->ticket->attempt) {
        log_warn("a command for attempt %d refused: this is attempt %d",
                 down->has_attempt ? (int)down->attempt : 0, (int)a->ticket->attempt);
    } else if (down->body_case == WORKER_DOWN__BODY_ACK) {
        outbox_ack(a->outbox, down->ack->seq);
        mailbox_wake(a->owner);
    } else if (down->body_case == WORKER_DOWN__BODY_LEASE) {
        int64_t ttl_ms = down->lease->ttl_ms;
        ttl_ms = ttl_ms < 0 ? 0 : ttl_ms < (int64_t)7 * 86400000 ? ttl_ms : (int64_t)7 * 86400000;
        atomic_store(&a->lease_until_ms, clock_mono_ms() + ttl_ms);
        mailbox_wake(a->owner);
    } else if (down->body_case != WORKER_DOWN__BODY__NOT_SET) {
        a->is_started = a->is_started || down->body_case == WORKER_DOWN__BODY_START;
        struct attach_event *e = calloc(1, sizeof *e);
        ASSERT(e);
        e->command = down;
        mailbox_post(a->owner, &e->node);
        return;
    }
    worker_down__free_unpacked(down, NULL);
}

/* Listens to its end. 0: ended with OK; -1: err. */
static int hear(struct attach *a, struct rpc_stream *s, struct error *err)
{
    for (;;) {
        ProtobufCMessage *message;
        int rc = rpc_stream_recv(s, &worker_down__descriptor, &message, -1, err);
        if (rc <= 0) {
            return rc;
        }
        if (!a->greeted) {
            log_info("attached to %s", a->ticket->server);
            a->greeted = true;
        }
        take_down(a, (WorkerDown *)message);
    }
}

static int converse(struct attach *a, struct rpc_stream *s, struct error *err)
{
    if (send_hello(a, s, err) != 0) {
        /* The stream's own status says more than that it ended. */
        return hear(a, s, err);
    }
    struct writer w = {.attach = a, .stream = s};
    pthread_t thread;
    outbox_rewind(a->outbox);
    int errnum = pthread_create(&thread, NULL, writer_main, &w);
    if (errnum) {
        return error_errno(err, errnum, "start a thread");
    }
    int rc = hear(a, s, err);
    outbox_interrupt(a->outbox);
    rpc_stream_cancel(s);
    pthread_join(thread, NULL);
    return rc;
}

/* Puts the stream where attach_stop finds it; false: we are stopping. */
static bool publish(struct attach *a, struct rpc_stream *s)
{
    pthread_mutex_lock(&a->lock);
    bool go_on = !a->stopping;
    a->stream = s;
    pthread_mutex_unlock(&a->lock);
    return go_on;
}

/* A channel that couldn't connect waits for a time of its own before it tries again: a fresh one
 * tries at once. */
static int open_channel(struct attach *a, struct error *err)
{
    struct rpc_channel_options options = {.target = a->ticket->server, .token = a->ticket->token};
    rpc_channel_close(a->channel);
    a->channel = NULL;
    return rpc_channel_open(&a->channel, &options, err);
}

static int run_stream(struct attach *a, struct error *err)
{
    struct rpc_stream *s;
    if (!a->greeted && open_channel(a, err) != 0) {
        return -1;
    }
    a->greeted = false;
    if (rpc_stream_open(a->channel, "/tandem.v1.Worker/Attach", NULL, &s, err) != 0) {
        return -1;
    }
    int rc = publish(a, s) ? converse(a, s, err) : error_set(err, ERR_CANCELLED, "stopping");
    publish(a, NULL);
    rpc_stream_close(s);
    return rc;
}

/* ---- again and again --------------------------------------------------------------------------
 */

/* Answers that the same question would get again. */
static bool is_refusal(enum error_code code)
{
    return code == ERR_FAILED_PRECONDITION || code == ERR_NOT_FOUND ||
           code == ERR_UNAUTHENTICATED || code == ERR_PERMISSION_DENIED ||
           code == ERR_INVALID_ARGUMENT;
}

static void post_refusal(struct attach *a, const struct error *err)
{
    struct attach_event *e = calloc(1, sizeof *e);
    ASSERT(e);
    snprintf(e->refusal, sizeof e->refusal, "%.500s", err->text);
    mailbox_post(a->owner, &e->node);
}

/* Half of the pause is drawn: a thousand nodes shouldn't come back in the same moment. false: we
 * are stopping. */
static bool pause_for(struct attach *a, int64_t backoff_ms)
{
    uint64_t who = (uint64_t)getpid() ^ (uint64_t)a->start_time << 20;
    double draw = rng_uniform(who, rng_stream("attach"), a->num_attempts++);
    int64_t until = clock_mono_ns() + (int64_t)((0.5 + 0.5 * draw) * (double)backoff_ms * 1e6);
    struct timespec ts = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_mutex_lock(&a->lock);
    int rc = 0;
    while (!a->stopping && rc == 0) {
        rc = pthread_cond_timedwait(&a->changed, &a->lock, &ts);
    }
    bool go_on = !a->stopping;
    pthread_mutex_unlock(&a->lock);
    return go_on;
}

static void *reader_main(void *arg)
{
    struct attach *a = arg;
    int64_t backoff_ms = BACKOFF_FIRST_MS;
    for (;;) {
        struct error err = {0};
        int rc = run_stream(a, &err);
        if (rc != 0 && is_refusal(err.code)) {
            post_refusal(a, &err);
            return NULL;
        }
        if (!a->greeted) {
            log_debug("attach to %s: %s", a->ticket->server, rc ? err.text : "ended at once");
        } else {
            log_info("stream to %s ended: %s", a->ticket->server,
                     rc ? err.text : "by the controller");
        }
        backoff_ms = a->greeted ? BACKOFF_FIRST_MS : backoff_ms;
        if (!pause_for(a, backoff_ms)) {
            return NULL;
        }
        backoff_ms = backoff_ms * 2 < BACKOFF_MOST_MS ? backoff_ms * 2 : BACKOFF_MOST_MS;
    }
}

/* ---- start, stop ------------------------------------------------------------------------------
 */

int attach_start(struct attach **out, const LaunchTicket *ticket, struct outbox *outbox,
                 struct mailbox *owner, struct error *err)
{
    struct attach *a = calloc(1, sizeof *a);
    ASSERT(a);
    a->ticket = ticket;
    a->outbox = outbox;
    a->owner = owner;
    a->start_time = read_start_time();
    read_boot_id(a->boot_id, sizeof a->boot_id);
    atomic_store(&a->lease_until_ms, clock_mono_ms() + ATTACH_FIRST_LEASE_MS);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&a->lock, NULL);
    int errnum = pthread_create(&a->reader, NULL, reader_main, a);
    if (errnum) {
        free(a);
        return error_errno(err, errnum, "start a thread");
    }
    *out = a;
    return 0;
}

void attach_stop(struct attach *a)
{
    if (!a) {
        return;
    }
    pthread_mutex_lock(&a->lock);
    a->stopping = true;
    pthread_cond_broadcast(&a->changed);
    if (a->stream) {
        rpc_stream_cancel(a->stream);
    }
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->reader, NULL);
    rpc_channel_close(a->channel);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    free(a);
}
