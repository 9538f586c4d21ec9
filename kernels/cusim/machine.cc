#include "kernels/cusim/machine.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cusim/memory.h"
#include "kernels/cusim/schedule.h"
#include "kernels/cusim/stream.h"
#include "kernels/cusim/tsan.h"

namespace cusim
{

#define PATIENCE_S 120.0

struct cusim_counts counts;
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
struct CUstream_st *streams;
static int depth;                   /* how often its owner has the lock */
static struct CUstream_st *running; /* its work runs, which may not call CUDA */

void machine_lock()
{
    pthread_mutex_lock(&lock);
    depth++;
}

void machine_unlock()
{
    depth--;
    pthread_mutex_unlock(&lock);
}

double machine_now_s()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void record_put(struct record *r)
{
    if (r && --r->num_users == 0) {
        free(r);
    }
}

struct CUstream_st *stream_check(cudaStream_t s, const char *what)
{
    if (!s || s == cudaStreamLegacy || s == cudaStreamPerThread) {
        fail("%s in CUDA's own stream: work takes a stream that was made", what);
    }
    if (running) {
        fail("%s: a function that a stream calls may not call CUDA", what);
    }
    return s;
}

struct CUstream_st *stream_running()
{
    return running;
}

bool stream_is_empty(void *s)
{
    return !((struct CUstream_st *)s)->first;
}

/* ---- work ---- */

static bool is_ready(const struct CUstream_st *s)
{
    return s->first && !s->waits && (!s->first->wait || s->first->wait->fired);
}

static void op_done(struct CUstream_st *s, struct op *op)
{
    s->first = op->next;
    if (!s->first) {
        s->last = nullptr;
    }
    if (op->fire) {
        op->fire->fired = true;
        op->fire->time_s = machine_now_s();
    }
    record_put(op->wait);
    record_put(op->fire);
    free(op);
}

static enum progress work(struct CUstream_st *s)
{
    struct op *op = s->first;
    enum progress p = WORK_DONE;
    tsan_acquire(op->token);
    if (op->wait) {
        tsan_acquire(op->wait->token);
    }
    if (op->fn) {
        memory_open();
        running = s;
        p = op->fn(op->args);
        running = nullptr;
        memory_close();
    }
    if (p == WORK_DONE) {
        free(op->args);
        if (op->fire) {
            tsan_release(op->fire->token);
        }
        tsan_release(s->token);
    }
    return p;
}

/* What a stream's fiber is asked to do, and by whom. */
static struct {
    struct fiber host;
    struct CUstream_st *stream;
    enum order { WORK, END } order;
    enum progress progress;
} asked;

static void obey()
{
    for (;;) {
        struct CUstream_st *s = asked.stream;
        switch (asked.order) {
        case asked.WORK:
            asked.progress = work(s);
            break;
        case asked.END:
            lanes_free(s->lanes);
            break;
        }
        fiber_switch(&s->fiber, &asked.host, false);
    }
}

static enum progress ask_fiber(struct CUstream_st *s, decltype(asked.order) order)
{
    asked.host = {nullptr, 0, nullptr, tsan_fiber_now(), nullptr};
    asked.stream = s;
    asked.order = order;
    fiber_switch(&asked.host, &s->fiber, false);
    return asked.progress;
}

static void step(struct CUstream_st *s)
{
    enum progress p = TSAN_ON ? ask_fiber(s, asked.WORK) : work(s);
    if (p == WORK_DONE) {
        op_done(s, s->first);
    } else {
        s->waits = true;
    }
}

void stream_begin(struct CUstream_st *s)
{
    if (TSAN_ON) {
        fiber_init(&s->fiber);
        fiber_begin(&s->fiber, obey);
    }
}

struct lanes *stream_lanes(struct CUstream_st *s)
{
    struct CUstream_st *owner = s->inside ? s->inside : s;
    if (!owner->lanes) {
        owner->lanes = lanes_new();
    }
    return owner->lanes;
}

void stream_end(struct CUstream_st *s)
{
    if (TSAN_ON) {
        ask_fiber(s, asked.END);
        fiber_drop(&s->fiber);
    } else {
        lanes_free(s->lanes);
    }
}

/* One that can go on: the preferred, a random one, or the one that was made last. */
static struct CUstream_st *pick(struct CUstream_st *preferred, bool *any_waits)
{
    struct CUstream_st *picked = nullptr;
    unsigned num_ready = 0;
    bool random = schedule_now()->streams == CUSIM_SHUFFLED;
    *any_waits = false;
    for (struct CUstream_st *s = streams; s; s = s->next) {
        if (s->device != machine_device()) {
            continue;
        }
        *any_waits |= s->first && (s->waits || !is_ready(s));
        if (!is_ready(s)) {
            continue;
        }
        num_ready++;
        if (random ? schedule_draw(num_ready) == 0 : !picked || s == preferred) {
            picked = s;
        }
    }
    return picked;
}

/* Gives others the machine, then asks everybody again. */
static void give_way()
{
    int all = depth;
    for (int i = 0; i < all; i++) {
        machine_unlock();
    }
    sched_yield();
    for (int i = 0; i < all; i++) {
        machine_lock();
    }
    for (struct CUstream_st *s = streams; s; s = s->next) {
        s->waits = false;
    }
}

void machine_drive(cudaStream_t preferred, bool (*done)(void *arg), void *arg)
{
    double since_s = machine_now_s();
    while (!done(arg)) {
        bool any_waits;
        struct CUstream_st *s = pick(preferred, &any_waits);
        if (s) {
            step(s);
            if (!s->waits) {
                since_s = machine_now_s();
            }
        } else if (any_waits && machine_now_s() - since_s < PATIENCE_S) {
            give_way();
        } else {
            fail("streams can't go on: what they wait for never comes");
        }
    }
}

static void run_ready()
{
    bool any_waits;
    struct CUstream_st *s;
    while ((s = pick(nullptr, &any_waits))) {
        step(s);
    }
}

void machine_nudge()
{
    if (schedule_now()->streams == CUSIM_EAGER) {
        run_ready();
    } else {
        bool any_waits;
        struct CUstream_st *s = pick(nullptr, &any_waits);
        if (s) {
            step(s);
        }
    }
    give_way();
}

void stream_push_wait(struct CUstream_st *s, struct record *r)
{
    r->num_users++;
    struct op op = {};
    op.what = "cudaStreamWaitEvent";
    op.wait = r;
    stream_push(s, &op);
}

struct record *stream_push_record(struct CUstream_st *s)
{
    struct record *r = (struct record *)calloc(1, sizeof *r);
    r->num_users = 2;
    r->token = tsan_token();
    struct op op = {};
    op.what = "cudaEventRecord";
    op.fire = r;
    stream_push(s, &op);
    return r;
}

void stream_push(struct CUstream_st *s, const struct op *op)
{
    if (capture_take(s, op)) {
        return;
    }
    struct op *copy = (struct op *)malloc(sizeof *copy);
    *copy = *op;
    copy->next = nullptr;
    copy->token = tsan_token();
    tsan_release(copy->token);
    *(s->last ? &s->last->next : &s->first) = copy;
    s->last = copy;
    if (schedule_now()->streams == CUSIM_EAGER) {
        run_ready();
    } else if (schedule_now()->streams == CUSIM_SHUFFLED) {
        while (schedule_draw(3) == 0) {
            bool any_waits;
            struct CUstream_st *ready = pick(nullptr, &any_waits);
            if (ready) {
                step(ready);
            }
        }
    }
}

void machine_enqueue(cudaStream_t s, const char *what, work_fn fn, const void *args, size_t bytes)
{
    struct machine_guard guard;
    stream_check(s, what);
    void *copy = malloc(bytes);
    memcpy(copy, args, bytes);
    struct op op = {};
    op.what = what;
    op.fn = fn;
    op.args = copy;
    op.bytes = bytes;
    stream_push(s, &op);
}

} // namespace cusim

using namespace cusim;

struct cusim_counts cusim_counted(void)
{
    struct machine_guard guard;
    return counts;
}
