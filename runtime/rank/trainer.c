#include "runtime/rank/trainer.h"

#include <math.h>

#include "base/clock.h"
#include "plan/schedule.h"
#include "plan/spec_check.h"
#include "runtime/optim/lr.h"
#include "runtime/rank/count.h"
#include "runtime/rank/measure.h"
#include "runtime/rank/nonfinite.h"
#include "runtime/rank/passes.h"
#include "runtime/rank/words.h"

/* ---- the parts of a step ----------------------------------------------------------------------
 */

/* Gradients begin anew, zero loss, what rank 0 decides. Late, all have read it when the next step
 * has been enqueued: so it is about that one's end. */
static int begin_step(struct rank *r, struct step *s, struct error *err)
{
    const TrainingSpec *training = r->plan->spec->training;
    double words[NUM_STEP_WORDS] = {0};
    s->dloss = 1.0 / ((double)training->global_batch_size * (double)training->seq_len);
    if (r->idx == 0 && (!r->late || trainer_is_first(r, s)))
        words[WORD_BOUNDARY] = (double)commands_take(&r->commands, s->number);
    if (r->idx == 0 && r->late)
        words[WORD_NEXT] = (double)commands_take(&r->commands, s->number + 1);
    if (store_begin_step(r->store, err) != 0)
        return -1;
    return words_put(r, s->number, WORD_LOSS, words, NUM_STEP_WORDS, err);
}

/* ---- passes, sums, the end of a step ----------------------------------------------------------
 */

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
    return pass_forward(r, a->unit_begin, a->unit_end, s->dloss, err);
}

static int backward(struct rank *r, const Action *a, struct error *err)
{
    if (store_await_weights(r->store, a->unit_begin, a->unit_end, err) != 0)
        return -1;
    bool is_first = store_grads_are_new(r->store, a->micro_batch);
    return pass_backward(r, a->unit_begin, a->unit_end, is_first, err);
}

static int reduce_loss(struct rank *r, struct error *err)
{
    if (!trainer_speaks_for_its_rows(r) && words_clear(r, WORD_LOSS, 1, err) != 0)
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

/* The norm is made of the whole step's sums; a loss that isn't finite stops the weights, too. */
static int begin_norm(struct rank *r, const struct step *s, struct error *err)
{
    struct reading *to = &r->of_steps[s->number % 2];
    if (store_norm(r->store, &r->words[WORD_LOSS], err) != 0 ||
        words_send(r, to, 0, &r->words[WORD_LOSS], NUM_STEP_WORDS, err) != 0 ||
        words_send(r, to, READ_NORM, store_norm_words(r->store), 1, err) != 0)
        return -1;
    return show_gradients(r, s->number, err);
}

static int update_weights(struct rank *r, struct step *s, struct error *err)
{
    s->result.lr = lr_at(r->plan->spec->training, r->plan->total_steps, s->number);
    if (saver_let_change(r->saver, err) != 0)
        return -1;
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
        return begin_norm(r, s, err);
    case ACTION_OPTIMIZER:
        return update_weights(r, s, err);
    default:
        return error_set(err, ERR_UNIMPLEMENTED, "the plan asks for action %d", (int)a->kind);
    }
}

static int enqueue_step(struct rank *r, struct step *s, struct error *err)
{
    s->begin_ns = clock_mono_ns();
    if (begin_step(r, s, err) != 0)
        return error_wrap(err, "step %lld", (long long)s->number);
    struct schedule_walk walk = {.stage = r->stage};
    for (Action a; schedule_next(&walk, &a);)
        if (trainer_action(r, s, &a, err) != 0)
            return error_wrap(err, "step %lld", (long long)s->number);
    if (words_sent(r, &r->of_steps[s->number % 2], err) != 0)
        return -1;
    s->enqueued_ns = clock_mono_ns();
    return 0;
}

/* ---- its outcome ------------------------------------------------------------------------------
 */

/* Waits for it, and says when it was done. Where there is next to nothing to wait for, the device
 * is as fast as its host: it was done about when it had been given all. */
static int await_step(struct rank *r, const struct step *s, int64_t *end_ns, struct error *err)
{
    int64_t begin_ns = clock_mono_ns();
    if (words_arrive(r, &r->of_steps[s->number % 2], err) != 0)
        return -1;
    *end_ns = clock_mono_ns();
    if (*end_ns - begin_ns < (s->enqueued_ns - s->begin_ns) / 4)
        *end_ns = s->enqueued_ns;
    return 0;
}

/* A step lasts from its beginning or, where that lay in the step before, from that one's end; and
 * not next to nothing, however the two were guessed. */
static int64_t duration_of(const struct step *s, int64_t last_end_ns, int64_t end_ns)
{
    int64_t from_ns = s->begin_ns > last_end_ns ? s->begin_ns : last_end_ns;
    int64_t least_ns = (end_ns - s->begin_ns) / 4;
    return end_ns - from_ns > least_ns ? end_ns - from_ns : least_ns;
}

static int read_step(struct rank *r, struct step *s, struct error *err)
{
    const struct reading *from = &r->of_steps[s->number % 2];
    int64_t end_ns;
    if (await_step(r, s, &end_ns, err) != 0)
        return -1;
    s->result.duration_ns = duration_of(s, r->end_ns, end_ns);
    r->end_ns = end_ns;
    s->result.loss = from->words[WORD_LOSS] * s->dloss;
    s->result.grad_norm = from->words[READ_NORM];
    s->boundary = (enum boundary)from->words[WORD_BOUNDARY];
    s->next_boundary = (enum boundary)from->words[WORD_NEXT];
    return 0;
}

static bool is_finite(const struct step *s)
{
    return isfinite(s->result.loss) && isfinite(s->result.grad_norm);
}

/* Behind the first step of an attempt all that a step takes has been taken. */
static int tell_memory(struct rank *r, struct error *err)
{
    MemoryUse use;
    measure_memory(r, &use);
    measure_log(r, &use);
    return report_memory(r->report, r->step, &use, err);
}

/* All ranks come to the same numbers, so all go on, or all look for what was wrong. */
static int finish_step(struct rank *r, struct step *s, struct error *err)
{
    if (read_step(r, s, err) != 0 || (!is_finite(s) && nonfinite_explain(r, s, err) != 0))
        return error_wrap(err, "step %lld", (long long)s->number);
    r->step = s->number;
    if (report_step(r->report, s->number, &s->result, err) != 0)
        return -1;
    return trainer_is_first(r, s) ? tell_memory(r, err) : 0;
}

/* The step behind it could not be enqueued: what it came to is told none the less, where it has
 * come to its end. */
static void tell_last(struct rank *r, struct step *s)
{
    struct error err;
    if (s->number > 0 && read_step(r, s, &err) == 0 && is_finite(s))
        report_step(r->report, s->number, &s->result, &err);
}

/* ---- between steps ----------------------------------------------------------------------------
 */

/* Does the plan say that the ranks save behind it? */
static bool is_planned_save(const struct rank *r, const struct step *s)
{
    int64_t interval = spec_checkpoint_interval(r->plan->spec);
    return s->number == r->plan->total_steps || (interval > 0 && s->number % interval == 0);
}

/* Starts a checkpoint of the state behind step s, the last that was enqueued. */
static int save(struct rank *r, const struct step *s, struct error *err)
{
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

static void show_memory(struct rank *r, int64_t step)
{
    const struct rank_observer *o = r->options->observer;
    MemoryUse use;
    if (o == NULL || o->memory == NULL)
        return;
    measure_memory(r, &use);
    o->memory(o->arg, r->idx, step, r->arenas, &use);
}

/* Enqueues the next step, then finishes the one before it (*before), and itself where something
 * waits for that; else it becomes *before. */
static int run_step(struct rank *r, struct step *s, struct step *before, bool *stop,
                    struct error *err)
{
    if (enqueue_step(r, s, err) != 0) {
        tell_last(r, before);
        return -1;
    }
    if (before->number > 0 && finish_step(r, before, err) != 0)
        return -1;
    enum boundary due = before->next_boundary;
    *before = *s;
    if (r->late && !trainer_is_first(r, s) && !is_planned_save(r, s) && due == BOUNDARY_NONE)
        return 0;
    if (finish_step(r, s, err) != 0)
        return -1;
    *before = (struct step){.next_boundary = s->next_boundary};
    due = r->late && !trainer_is_first(r, s) ? due : s->boundary;
    *stop = due == BOUNDARY_STOP;
    return due != BOUNDARY_NONE || is_planned_save(r, s) ? save(r, s, err) : 0;
}

int trainer_run(struct rank *r, bool *paused, struct error *err)
{
    struct step before = {0};
    bool stop = false;
    int64_t last = r->plan->total_steps;
    r->first_step = r->step + 1;
    for (int64_t n = r->first_step; n <= last && !stop; n++) {
        struct step s = {.number = n};
        if (commands_poll(&r->commands, r->options->link, err) != 0 ||
            report_phase(r->report, r->step, "train", err) != 0 ||
            run_step(r, &s, &before, &stop, err) != 0)
            return -1;
        show_memory(r, n);
    }
    *paused = stop && r->step < last;
    if (show_state(r, err) != 0)
        return -1;
    return saver_wait(r->saver, true, err);
}
