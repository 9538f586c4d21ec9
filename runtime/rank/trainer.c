#include "runtime/rank/trainer.h"

#include <math.h>

#include "base/clock.h"
#include "plan/schedule.h"
#include "plan/spec_check.h"
#include "runtime/optim/lr.h"
#include "runtime/rank/measure.h"
#include "runtime/rank/nonfinite.h"
#include "runtime/rank/words.h"

/* ---- the parts of a step ----------------------------------------------------------------------
 */

/* Tensor ranks read the same rows and come to the same loss: one of them counts. */
static bool speaks_for_its_rows(const struct rank *r)
{
    return r->axes.coord.tensor == 0;
}

/* Zero gradients, zero loss, the word for this step's end. */
static int begin_step(struct rank *r, struct step *s, struct error *err)
{
    const TrainingSpec *training = r->plan->spec->training;
    double words[NUM_STEP_WORDS] = {0};
    s->dloss = 1.0 / ((double)training->global_batch_size * (double)training->seq_len);
    if (r->idx == 0)
        words[WORD_BOUNDARY] = (double)commands_take(&r->commands, s->number);
    if (store_begin_step(r->store, err) != 0)
        return -1;
    return words_put(r, WORD_LOSS, words, NUM_STEP_WORDS, err);
}

/* Where data can have ignored targets. */
static int count_targets(struct rank *r, struct step *s, struct error *err)
{
    struct loader *loader = feed_loader(r->feed);
    struct loader_counts own = {0};
    double counts[NUM_COUNTS];
    if (speaks_for_its_rows(r) && loader_count_own_targets(loader, s->number, &own, err) != 0)
        return -1;
    counts[0] = (double)own.targets;
    counts[1] = (double)own.tokens;
    counts[2] = (double)own.attended;
    if (words_put(r, WORD_TARGETS, counts, NUM_COUNTS, err) != 0 ||
        words_sum(r, WORD_TARGETS, NUM_COUNTS, "counted targets", err) != 0 ||
        store_wait(r->store, err) != 0 || words_get(r, WORD_TARGETS, counts, NUM_COUNTS, err) != 0)
        return -1;
    if (counts[0] == 0.0)
        return loader_no_targets(loader, s->number, err);
    s->dloss = 1.0 / counts[0];
    s->result.tokens = counts[1];
    s->result.attended = counts[2];
    return 0;
}

static int forward(struct rank *r, const struct step *s, const Action *a, struct error *err)
{
    struct batch batch;
    if (a->unit_begin == 0) {
        if (feed_read(r->feed, s->number, a->micro_batch, &batch, err) != 0)
            return -1;
        model_set_batch(r->model, &batch);
    }
    if (store_await_weights(r->store, a->unit_begin, a->unit_end, err) != 0)
        return -1;
    return model_forward(r->model, a->unit_begin, a->unit_end, s->dloss, &r->words[WORD_LOSS], err);
}

static int backward(struct rank *r, const Action *a, struct error *err)
{
    if (store_await_weights(r->store, a->unit_begin, a->unit_end, err) != 0)
        return -1;
    return model_backward(r->model, a->unit_begin, a->unit_end, err);
}

static int reduce_loss(struct rank *r, struct error *err)
{
    if (!speaks_for_its_rows(r) && words_clear(r, WORD_LOSS, 1, err) != 0)
        return -1;
    return words_sum(r, WORD_LOSS, NUM_STEP_WORDS, "loss", err);
}

static int show_gradients(struct rank *r, int64_t step, struct error *err)
{
    const struct rank_observer *o = r->options->observer;
    if (o == NULL || o->gradients == NULL)
        return 0;
    if (r->dev->ops->stream_sync(r->dev, r->compute, err) != 0)
        return -1;
    o->gradients(o->arg, r->idx, step, &r->table, &r->axes, r->store);
    return 0;
}

static int measure_norm(struct rank *r, struct step *s, struct error *err)
{
    double words[NUM_STEP_WORDS];
    if (store_norm(r->store, &r->words[WORD_LOSS], err) != 0 ||
        r->dev->ops->copy(r->dev, r->compute, &s->result.grad_norm, store_norm_words(r->store),
                          sizeof(double), COPY_TO_HOST, err) != 0 ||
        words_get(r, WORD_LOSS, words, NUM_STEP_WORDS, err) != 0)
        return -1;
    s->result.loss = words[WORD_LOSS] * s->dloss;
    s->boundary = (enum boundary)words[WORD_BOUNDARY];
    if (!isfinite(s->result.loss) || !isfinite(s->result.grad_norm))
        return nonfinite_explain(r, s, err);
    return show_gradients(r, s->number, err);
}

static int update_weights(struct rank *r, struct step *s, struct error *err)
{
    const TrainingSpec *training = r->plan->spec->training;
    s->result.lr = lr_at(training, r->plan->total_steps, s->number);
    return store_optimizer_step(r->store, s->number, s->result.lr, err);
}

/* ---- the step ---------------------------------------------------------------------------------
 */

int trainer_action(struct rank *r, struct step *s, const Action *a, struct error *err)
{
    switch (a->kind) {
    case ACTION_COUNT_TARGETS:
        return count_targets(r, s, err);
    case ACTION_GATHER:
        return store_gather(r->store, a->bucket, a->slot, err);
    case ACTION_FORWARD:
        return forward(r, s, a, err);
    case ACTION_OPEN_GRADS:
        return store_open_grads(r->store, a->bucket, a->slot, err);
    case ACTION_BACKWARD:
        return backward(r, a, err);
    case ACTION_RELEASE:
        return store_release(r->store, a->bucket, err);
    case ACTION_REDUCE_PARTIAL:
        return store_reduce_partial(r->store, a->unit_begin, err);
    case ACTION_REDUCE_BUCKET:
        return store_reduce_bucket(r->store, a->bucket, a->final, err);
    case ACTION_REDUCE_LOSS:
        return reduce_loss(r, err);
    case ACTION_WAIT_REDUCES:
        return store_wait(r->store, err);
    case ACTION_NORM:
        return measure_norm(r, s, err);
    case ACTION_OPTIMIZER:
        return update_weights(r, s, err);
    default:
        return error_set(err, ERR_UNIMPLEMENTED, "the plan asks for action %d", (int)a->kind);
    }
}

static int run_step(struct rank *r, struct step *s, struct error *err)
{
    int64_t begin_ns = clock_mono_ns();
    if (begin_step(r, s, err) != 0)
        return error_wrap(err, "step %lld", (long long)s->number);
    struct schedule_walk walk = {.stage = r->stage};
    for (Action a; schedule_next(&walk, &a);)
        if (trainer_action(r, s, &a, err) != 0)
            return error_wrap(err, "step %lld", (long long)s->number);
    s->result.duration_ns = clock_mono_ns() - begin_ns;
    return 0;
}

/* Starts a checkpoint where one is due after step s. */
static int save_if_due(struct rank *r, const struct step *s, struct error *err)
{
    int64_t interval = spec_checkpoint_interval(r->plan->spec);
    bool due = s->boundary != BOUNDARY_NONE || s->number == r->plan->total_steps ||
               (interval > 0 && s->number % interval == 0);
    if (!due)
        return 0;
    const TrainingSpec *training = r->plan->spec->training;
    struct ckpt_meta meta = {
        .step = s->number,
        .consumed_samples = s->number * training->global_batch_size,
        .seed = training->seed,
        .attempt = r->options->start->attempt,
        .loss = s->result.loss,
    };
    if (report_phase(r->report, s->number, "save", err) != 0 ||
        store_await_weights(r->store, 0, r->num_units, err) != 0)
        return -1;
    return saver_start(r->saver, &meta, err);
}

static int show_state(struct rank *r, struct error *err)
{
    const struct rank_observer *o = r->options->observer;
    if (o == NULL || o->state == NULL)
        return 0;
    if (store_await_weights(r->store, 0, r->num_units, err) != 0 ||
        r->dev->ops->stream_sync(r->dev, r->compute, err) != 0)
        return -1;
    o->state(o->arg, r->idx, r->step, &r->table, &r->axes, r->store);
    return 0;
}

/* Behind the first step of an attempt all that a step takes has been taken. */
static int tell_memory(struct rank *r, struct error *err)
{
    MemoryUse use;
    measure_memory(r, &use);
    measure_log(&use);
    return report_memory(r->report, r->step, &use, err);
}

static void show_memory(struct rank *r)
{
    const struct rank_observer *o = r->options->observer;
    MemoryUse use;
    if (o == NULL || o->memory == NULL)
        return;
    measure_memory(r, &use);
    o->memory(o->arg, r->idx, r->step, r->arenas, &use);
}

int trainer_run(struct rank *r, bool *paused, struct error *err)
{
    int64_t first = r->step + 1;
    *paused = false;
    while (r->step < r->plan->total_steps && !*paused) {
        struct step s = {.number = r->step + 1};
        if (commands_poll(&r->commands, r->options->link, err) != 0 ||
            report_phase(r->report, r->step, "train", err) != 0 || run_step(r, &s, err) != 0)
            return -1;
        r->step = s.number;
        if (report_step(r->report, s.number, &s.result, err) != 0 ||
            (s.number == first && tell_memory(r, err) != 0) || save_if_due(r, &s, err) != 0)
            return -1;
        show_memory(r);
        *paused = s.boundary == BOUNDARY_STOP && s.number < r->plan->total_steps;
    }
    if (show_state(r, err) != 0)
        return -1;
    return saver_wait(r->saver, true, err);
}
