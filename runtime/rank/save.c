#include "runtime/rank/save.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "model/config.h"

struct saver {
    struct saver_options options;
    char parent[1024];         /* JOB/ckpt */
    struct stream *stream;     /* owned; of the host: writes */
    struct stream *copies;     /* owned; of the device: copies to the snapshot. The same on hosts */
    struct event *ready;       /* compute has come to the state that is saved */
    struct event *copied;      /* the snapshot is whole */
    bool is_copying;           /* compute has not waited for that yet */
    struct ckpt_state state;   /* what is written: live, or the snapshot */
    void *snapshot;            /* of the arenas, on the host; NULL = state is live */
    struct flat_range *ranges; /* owned; of the snapshot's parts */
    struct ckpt_meta meta;     /* of the save under way */
    /* Written on the stream's thread, read after its sync. */
    struct ckpt_save *save; /* owned; between the steps of a save */
    double *num_failed;     /* of the arenas; over all ranks, after an exchange */
    struct error failure;
    bool is_others;         /* it is the failure of others alone */
    char newest[1024 + 64]; /* what this rank committed last */
};

static void use_snapshot(struct saver *s, struct ckpt_part *part, int64_t first)
{
    if (part->data == NULL)
        return;
    size_t bytes = (size_t)first * dtype_size(s->state.dtype);
    *part = (struct ckpt_part){
        .data = (char *)s->snapshot + bytes,
        .ranges = s->ranges,
        .num_ranges = s->state.owned != NULL ? s->state.num_owned : 1,
    };
}

/* One piece of memory for the copies of all parts that there are. */
static int alloc_snapshot(struct saver *s, struct error *err)
{
    struct ckpt_state *state = &s->state;
    size_t num_ranges = state->owned != NULL ? (size_t)state->num_owned : 1;
    s->ranges = calloc(num_ranges + 1, sizeof(*s->ranges));
    if (s->ranges == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the saver");
    int64_t numel = ckpt_copy_layout(state, s->ranges);
    int64_t num_parts = state->exp_avg.data != NULL ? 3 : 1;
    size_t bytes = (size_t)(numel * num_parts) * dtype_size(state->dtype);
    s->snapshot = arenas_take(s->options.arenas, ARENA_SNAPSHOT, bytes, false, err);
    if (s->snapshot == NULL)
        return -1;
    use_snapshot(s, &state->weights, 0);
    use_snapshot(s, &state->exp_avg, numel);
    use_snapshot(s, &state->exp_avg_sq, 2 * numel);
    return 0;
}

static int open_streams(struct saver *s, struct error *err)
{
    struct device *dev = s->options.dev, *host = s->options.host;
    if (host->ops->stream_new(host, STREAM_QUEUE, &s->stream, err) != 0)
        return -1;
    s->copies = s->stream;
    if (dev != host && dev->ops->stream_new(dev, STREAM_QUEUE, &s->copies, err) != 0) {
        s->copies = NULL;
        return -1;
    }
    if (dev->ops->event_new(dev, &s->ready, err) != 0)
        return -1;
    return dev->ops->event_new(dev, &s->copied, err);
}

int saver_new(struct saver **out, const struct saver_options *options, struct error *err)
{
    struct saver *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the saver");
    s->options = *options;
    s->state = options->live;
    s->num_failed = arenas_take(options->arenas, ARENA_HOST, sizeof(*s->num_failed), false, err);
    if (s->num_failed == NULL)
        goto fail;
    if (!fs_join(s->parent, sizeof(s->parent), options->job_dir, "ckpt")) {
        error_set(err, ERR_INVALID_ARGUMENT, "%s: path too long", options->job_dir);
        goto fail;
    }
    if (open_streams(s, err) != 0 ||
        ((options->async || !DEVICE_IS_HOST(options->dev)) && alloc_snapshot(s, err) != 0))
        goto fail;
    *out = s;
    return 0;
fail:
    saver_free(s);
    return -1;
}

void saver_free(struct saver *s)
{
    if (s == NULL)
        return;
    struct device *dev = s->options.dev, *host = s->options.host;
    if (s->stream != NULL) {
        host->ops->stream_sync(host, s->stream, NULL);
        host->ops->stream_free(host, s->stream);
    }
    if (s->copies != NULL && s->copies != s->stream) {
        dev->ops->stream_sync(dev, s->copies, NULL);
        dev->ops->stream_free(dev, s->copies);
    }
    if (s->ready != NULL)
        dev->ops->event_free(dev, s->ready);
    if (s->copied != NULL)
        dev->ops->event_free(dev, s->copied);
    ckpt_save_free(s->save);
    free(s->ranges);
    free(s);
}

/* ---- on the saver's stream --------------------------------------------------------------------
 */

struct save_call {
    struct saver *saver;
};

static int32_t writer_of(const struct saver *s)
{
    return s->options.comm != NULL ? s->options.comm->rank : 0;
}

static int32_t num_writers(const struct saver *s)
{
    return s->options.comm != NULL ? s->options.comm->size : 1;
}

/* What one rank could not do all must hear of: it is counted, not raised. */
static void note_failure(struct saver *s, bool failed)
{
    *s->num_failed = failed ? 1.0 : 0.0;
}

/* Has any rank failed, as of the exchange before? This one then says so too. */
static bool has_failed(struct saver *s)
{
    if (*s->num_failed == 0.0)
        return false;
    if (s->failure.code == ERR_OK) {
        error_set(&s->failure, ERR_UNAVAILABLE, "another rank could not write its part");
        s->is_others = true;
    }
    return true;
}

/* An accelerator's copies: their stream doesn't hold up the host's. */
static int await_copies(void *args, struct error *err)
{
    const struct saver *s = ((struct save_call *)args)->saver;
    return s->options.dev->ops->event_sync(s->options.dev, s->copied, err);
}

static int write_part(void *args, struct error *err)
{
    (void)err;
    struct saver *s = ((struct save_call *)args)->saver;
    ckpt_save_free(s->save); /* of one that a communicator's failure cut short */
    s->save = NULL;
    note_failure(s, ckpt_save_write(&s->save, s->parent, &s->state, &s->meta, writer_of(s),
                                    num_writers(s), &s->failure) != 0);
    return 0;
}

/* All bytes of all ranks are in the files. */
static int seal_part(void *args, struct error *err)
{
    (void)err;
    struct saver *s = ((struct save_call *)args)->saver;
    note_failure(s, has_failed(s) || ckpt_save_seal(s->save, &s->failure) != 0);
    ckpt_save_free(s->save);
    s->save = NULL;
    return 0;
}

/* A checkpoint holds tensors alone; with this beside them others can make a model of it. */
static int write_config(const struct saver *s, struct error *err)
{
    char path[1024];
    if (!fs_join(path, sizeof(path), s->options.job_dir, "config.json"))
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: path too long", s->options.job_dir);
    if (fs_exists(path))
        return 0;
    char *text = config_to_json(s->options.config, "float32");
    int rc = fs_write_atomic(path, text, strlen(text), 0644, err);
    free(text);
    return rc;
}

static int commit_checkpoint(struct saver *s, struct error *err)
{
    char dir[sizeof(s->newest)];
    int64_t size_bytes = 0;
    if (write_config(s, &s->failure) != 0 ||
        ckpt_commit(s->parent, &s->meta, num_writers(s), dir, sizeof(dir), &size_bytes,
                    &s->failure) != 0) {
        *s->num_failed = 1.0;
        return 0;
    }
    snprintf(s->newest, sizeof(s->newest), "%s", dir);
    const char *slash = strrchr(dir, '/');
    return report_checkpoint(s->options.report, s->meta.step, slash != NULL ? slash + 1 : dir,
                             size_bytes, s->meta.loss, err);
}

/* All parts are written or have failed by now: what is there of them goes, the disk may be full. */
static void give_back_space(struct saver *s)
{
    struct error err;
    if (ckpt_abandon(s->parent, &s->meta, &err) != 0)
        log_warn("checkpoint of step %lld: %s", (long long)s->meta.step, err.text);
}

static int finish(void *args, struct error *err)
{
    struct saver *s = ((struct save_call *)args)->saver;
    int rc = 0;
    if (!has_failed(s) && writer_of(s) == 0)
        rc = commit_checkpoint(s, err);
    if (s->failure.code != ERR_OK)
        log_error("checkpoint of step %lld failed: %s", (long long)s->meta.step, s->failure.text);
    if (*s->num_failed > 0.0 && writer_of(s) == 0)
        give_back_space(s);
    return rc;
}

/* All ranks agree on how many have failed so far. */
static int exchange(struct saver *s, struct error *err)
{
    struct comm *comm = s->options.comm;
    if (comm == NULL)
        return 0;
    comm_say(comm, "checkpoint of step %lld", (long long)s->meta.step);
    return comm->ops->all_reduce(comm, s->stream, s->num_failed, 1, DTYPE_F64, COMM_SUM, err);
}

static int call(struct saver *s, device_call_fn fn, struct error *err)
{
    struct device *host = s->options.host;
    struct save_call args = {.saver = s};
    return host->ops->host_call(host, s->stream, fn, &args, sizeof(args), err);
}

static int enqueue(struct saver *s, struct error *err)
{
    bool elsewhere = s->copies != s->stream;
    if ((elsewhere && call(s, await_copies, err) != 0) || call(s, write_part, err) != 0 ||
        exchange(s, err) != 0 || call(s, seal_part, err) != 0 || exchange(s, err) != 0)
        return -1;
    return call(s, finish, err);
}

/* ---- on the rank's thread ---------------------------------------------------------------------
 */

/* One part to its copy, or back. */
struct copy {
    struct saver *saver;
    char *live, *snapshot;
    struct stream *stream;
    bool back;
};

static int copy_run(void *arg, int64_t to, int64_t from, int64_t numel, struct error *err)
{
    const struct copy *c = arg;
    struct device *dev = c->saver->options.dev;
    size_t size = dtype_size(c->saver->state.dtype), bytes = (size_t)numel * size;
    char *live = c->live + (size_t)from * size, *snapshot = c->snapshot + (size_t)to * size;
    return c->back ? dev->ops->copy(dev, c->stream, live, snapshot, bytes, COPY_TO_DEVICE, err)
                   : dev->ops->copy(dev, c->stream, snapshot, live, bytes, COPY_TO_HOST, err);
}

static int copy_part(struct saver *s, const struct ckpt_part *live,
                     const struct ckpt_part *snapshot, bool back, struct error *err)
{
    struct copy c = {s, live->data, snapshot->data, back ? s->options.compute : s->copies, back};
    return live->data == NULL ? 0 : ckpt_copy_each(&s->options.live, live, copy_run, &c, err);
}

static int copy_parts(struct saver *s, bool moments, bool back, struct error *err)
{
    const struct ckpt_state *live = &s->options.live, *to = &s->state;
    if (copy_part(s, &live->weights, &to->weights, back, err) != 0)
        return -1;
    if (!moments)
        return 0;
    if (copy_part(s, &live->exp_avg, &to->exp_avg, back, err) != 0)
        return -1;
    return copy_part(s, &live->exp_avg_sq, &to->exp_avg_sq, back, err);
}

/* Behind what compute has been given so far, and beside what comes. */
static int take_snapshot(struct saver *s, struct error *err)
{
    struct device *dev = s->options.dev;
    if (dev->ops->event_record(dev, s->ready, s->options.compute, err) != 0 ||
        dev->ops->stream_wait(dev, s->copies, s->ready, err) != 0 ||
        copy_parts(s, true, false, err) != 0 ||
        dev->ops->event_record(dev, s->copied, s->copies, err) != 0)
        return -1;
    s->is_copying = true;
    return 0;
}

int saver_let_change(struct saver *s, struct error *err)
{
    if (!s->is_copying)
        return 0;
    struct device *dev = s->options.dev;
    s->is_copying = false;
    return dev->ops->stream_wait(dev, s->options.compute, s->copied, err);
}

const struct ckpt_state *saver_image(const struct saver *s)
{
    return DEVICE_IS_HOST(s->options.dev) ? &s->options.live : &s->state;
}

int saver_put_back(struct saver *s, bool moments, struct error *err)
{
    struct device *dev = s->options.dev;
    if (DEVICE_IS_HOST(dev))
        return 0;
    if (copy_parts(s, moments, true, err) != 0)
        return -1;
    return dev->ops->stream_sync(dev, s->options.compute, err);
}

int saver_start(struct saver *s, const struct ckpt_meta *meta, struct error *err)
{
    if (saver_wait(s, false, err) != 0)
        return -1;
    struct device *dev = s->options.dev;
    s->meta = *meta;
    s->failure = (struct error){0};
    s->is_others = false;
    if ((s->snapshot != NULL ? take_snapshot(s, err)
                             : dev->ops->stream_sync(dev, s->options.compute, err)) != 0)
        return -1;
    if (enqueue(s, err) != 0)
        return error_wrap(err, "checkpoint of step %lld", (long long)meta->step);
    return s->options.async ? 0 : saver_wait(s, false, err);
}

/* Who has failed leaves with its reason, to which those who only heard of it give way: they meet
 * where it won't come, and go down with its words. */
static int give_way(struct saver *s, struct error *err)
{
    struct device *host = s->options.host;
    return exchange(s, err) != 0 || host->ops->stream_sync(host, s->stream, err) != 0 ? -1 : 0;
}

int saver_wait(struct saver *s, bool must_hold, struct error *err)
{
    struct device *host = s->options.host;
    if (host->ops->stream_sync(host, s->stream, err) != 0)
        return error_wrap(err, "checkpoint of step %lld", (long long)s->meta.step);
    if (!must_hold || s->failure.code == ERR_OK)
        return 0;
    if (s->is_others && give_way(s, err) != 0)
        return -1;
    return error_set(err, s->failure.code, "checkpoint of step %lld: %s", (long long)s->meta.step,
                     s->failure.text);
}

const char *saver_newest(const struct saver *s)
{
    return s->newest;
}
