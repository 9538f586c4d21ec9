#include "layout_waits.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "kernels/host/stream.h"
#include "runtime/parallel/store.h"

/* Threads that compute call store_begin_step, the streams' own never do. */
static _Thread_local bool computes;
static _Atomic int64_t waited_ns, inline_ns, begin_ns, num_computing;
static atomic_bool serial;

void layout_waits_reset(void)
{
    waited_ns = inline_ns = 0;
    begin_ns = clock_mono_ns();
}

struct layout_waits layout_waits_take(void)
{
    double all = (double)(clock_mono_ns() - begin_ns) * (double)(num_computing ? num_computing : 1);
    struct layout_waits w = {(double)waited_ns / all, (double)inline_ns / all};
    num_computing = 0;
    return w;
}

void layout_waits_serial(bool on)
{
    serial = on;
}

int __real_store_begin_step(struct store *s, struct error *err);
int __wrap_store_begin_step(struct store *s, struct error *err);
int __wrap_store_begin_step(struct store *s, struct error *err)
{
    if (!computes)
        num_computing++;
    computes = true;
    return __real_store_begin_step(s, err);
}

int __real_host_stream_wait(struct stream *s, struct event *e, struct error *err);
int __wrap_host_stream_wait(struct stream *s, struct event *e, struct error *err);
int __wrap_host_stream_wait(struct stream *s, struct event *e, struct error *err)
{
    int64_t begin = clock_mono_ns();
    int rc = __real_host_stream_wait(s, e, err);
    if (computes)
        waited_ns += clock_mono_ns() - begin;
    return rc;
}

int __real_host_call_run(void *args, struct error *err);
int __wrap_host_call_run(void *args, struct error *err);
int __wrap_host_call_run(void *args, struct error *err)
{
    int64_t begin = clock_mono_ns();
    int rc = __real_host_call_run(args, err);
    if (computes)
        inline_ns += clock_mono_ns() - begin;
    return rc;
}

/* Collectives are submitted as calls of a queue. */
int __real_host_stream_submit(struct stream *s, const struct host_work *w, struct error *err);
int __wrap_host_stream_submit(struct stream *s, const struct host_work *w, struct error *err);
int __wrap_host_stream_submit(struct stream *s, const struct host_work *w, struct error *err)
{
    int rc = __real_host_stream_submit(s, w, err);
    if (rc != 0 || !computes || !serial || w->loop != NULL)
        return rc;
    int64_t begin = clock_mono_ns();
    rc = host_stream_sync(s, err);
    waited_ns += clock_mono_ns() - begin;
    return rc;
}
