#include "runtime/rank/trainer.h"

#include <math.h>

#include "base/clock.h"
#include "plan/schedule.h"
#include "plan/spec_check.h"
#include "runtime/optim/clip.h"
#include "runtime/optim/lr.h"
#include "runtime/rank/nonfinite.h"

/* One step on its way. */
struct step {
    int64_t number;
    double dloss; /* 1 / valid targets of the whole step, over all ranks: the one divisor */
    enum boundary boundary;
    struct step_result result;
};

static int load_batch(struct rank *r, int64_t step, int64_t micro_batch, struct error *err)
{
    const TrainingSpec *training = r->plan->spec->training;
    int64_t n = training->micro_batch_size * training->seq_len;
    const struct host_batch host = {.ids = r->batch_host, .targets = r->batch_host + n};
    if (loader_read(r->loader, step, micro_batch, &host, err) != 0 ||
        r->dev->ops->copy(r->dev, r->compute, r->batch, r->batch_host,
                          (size_t)(2 * n) * sizeof(*r->batch), COPY_TO_DEVICE, err) != 0)
        return -1;
    const struct batch batch = {.ids = r->batch, .targets = r->batch + n};
    model_set_batch(r->model, &batch);
    return 0;
}

int trainer_forward(struct rank *r, int64_t step, const Action *a, double dloss, struct error *err)
{
    if (a->unit_begin == 0 && load_batch(r, step, a->micro_batch, err) != 0)
        return -1;
    return model_forward(r->model, a->unit_begin, a->unit_end, dloss, &r->words[WORD_LOSS], err);
}

/* Zero gradients, zero loss, the word for this step's end. */
static int begin_step(struct rank *r, struct step *s, struct error *err)
{
    const TrainingSpec *training = r->plan->spec->training;
    int64_t num_targets = training->global_batch_size * training->seq_len;
    s->dloss = 1.0 / (double)num_targets;
    double words[NUM_STEP_WORDS] = {0};
    if (r->idx == 0)
        words[WORD_BOUNDARY] = (double)commands_take(&r->commands, s->number);
    size_t grad_bytes = (size_t)r->table.flat_numel * dtype_size(r->dtype);
    if (r->dev->ops->zero(r->dev, r->compute, r->grads, grad_bytes, err) != 0)
        return -1;
    return r->dev->ops->copy(r->dev, r->compute, r->words, words, sizeof(words), COPY_TO_DEVICE,
                             err);
}

/* All sums are there: what they say. */
static int read_words(struct rank *r, struct step *s, struct error *err)
{
    double words[NUM_STEP_WORDS];
    if (r->dev->ops->copy(r->dev, r->compute, words, r->words, sizeof(words), COPY_TO_HOST, err) !=
            0 ||
        r->dev->ops->stream_sync(r->dev, r->compute, err) != 0)
        return -1;
    s->result.loss = words[WORD_LOSS] * s->dloss;
    s->boundary = (enum boundary)words[WORD_BOUNDARY];
    return 0;
}

static int measure_norm(struct rank *r, struct step *s, struct error *err)
{
    if (read_words(r, s, err) != 0 ||
        clip_norm(r->dev, r->kernels, r->compute, r->dtype, r->grads, r->table.flat_numel,
                  &r->words[WORD_SCRATCH], &s->result.grad_norm, err) != 0)
        return -1;
    if (!isfinite(s->result.loss) || !isfinite(s->result.grad_norm))
        return nonfinite_explain(r, s->number, s->dloss, &s->result, err);
    return 0;
}

static int update_weights(struct rank *r, struct step *s, struct error *err)
{
    const TrainingSpec *training = r->plan->spec->training;
    s->result.lr = lr_at(training, r->plan->total_steps, s->number);
    return optimizer_step(r->optimizer, s->number, s->result.lr,
                          clip_factor(s->result.grad_norm, training->clip_grad_norm), err);
}

static int run_action(struct rank *r, struct step *s, const Action *a, struct error *err)
{
    switch (a->kind) {
    case ACTION_FORWARD:
        return trainer_forward(r, s->number, a, s->dloss, err);
    case ACTION_BACKWARD:
        return model_backward(r->model, a->unit_begin, a->unit_end, err);
    case ACTION_REDUCE_BUCKET:
        return dp_reduce_bucket(r->dp, a->bucket, err);
    case ACTION_REDUCE_LOSS:
        return dp_reduce_words(r->dp, r->words, NUM_STEP_WORDS, err);
    case ACTION_WAIT_REDUCES:
        return dp_wait(r->dp, err);
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
        if (run_action(r, s, &a, err) != 0)
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
    if (report_phase(r->report, s->number, "save", err) != 0)
        return -1;
    return saver_start(r->saver, &meta, err);
}

int trainer_run(struct rank *r, bool *paused, struct error *err)
{
    *paused = false;
    while (r->step < r->plan->total_steps && !*paused) {
        struct step s = {.number = r->step + 1};
        if (commands_poll(&r->commands, r->options->link, err) != 0 ||
            report_phase(r->report, r->step, "train", err) != 0 || run_step(r, &s, err) != 0)
            return -1;
        r->step = s.number;
        if (report_step(r->report, s.number, &s.result, err) != 0 || save_if_due(r, &s, err) != 0)
            return -1;
        *paused = s.boundary == BOUNDARY_STOP && s.number < r->plan->total_steps;
    }
    return saver_wait(r->saver, true, err);
}
