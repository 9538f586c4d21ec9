/* How long a job is: samples of a pass, steps of the job. */
#include "plan/plan.h"

#include <math.h>
#include <string.h>

/* Far above any run, far below where doubles lose whole numbers. */
#define STEPS_MAX 1e12

/* A format without a name is one of windows. */
static bool is_rows(const SourceSpec *source)
{
    return source->format && strcmp(source->format, "tokenized-jsonl") == 0;
}

int64_t plan_samples_per_epoch(const DataFacts *data, const SourceSpec *source, int64_t seq_len)
{
    ASSERT(seq_len >= 1 && seq_len < INT64_MAX);
    if (is_rows(source)) {
        return data->num_rows;
    }
    if (data->num_tokens < 1) {
        return 0;
    }
    if (strcmp(source->window, "T+1") == 0) {
        return data->num_tokens / (seq_len + 1);
    }
    return (data->num_tokens - 1) / seq_len;
}

bool plan_can_ignore_targets(const Plan *plan)
{
    const DataSpec *data = plan->spec->data;
    for (size_t i = 0; i < data->n_train; i++) {
        if (is_rows(data->train[i])) {
            return true;
        }
    }
    return false;
}

bool plan_needs_data(const JobSpec *spec)
{
    const TrainingSpec *t = spec->training;
    bool rows = false;
    for (size_t i = 0; i < spec->data->n_train; i++) {
        rows = rows || is_rows(spec->data->train[i]);
    }
    return rows || !(t->has_steps || t->has_tokens);
}

/* Up to whole steps; 7.000000000000001 of 0.7 x 10 is 7. */
static double whole_steps(double steps)
{
    double near = nearbyint(steps);
    return fabs(steps - near) <= 1e-12 * fabs(steps) ? near : ceil(steps);
}

int plan_total_steps(const JobSpec *spec, int64_t samples_per_epoch, int64_t *out,
                     struct error *err)
{
    const TrainingSpec *t = spec->training;
    ASSERT(samples_per_epoch > 0 || (samples_per_epoch == 0 && !plan_needs_data(spec)));
    double batch = (double)t->global_batch_size;
    double steps;
    const char *field;
    if (t->has_steps) {
        field = "steps";
        steps = (double)t->steps;
    } else if (t->has_tokens) {
        field = "tokens";
        steps = whole_steps(t->tokens / (batch * (double)t->seq_len));
    } else if (t->has_epochs) {
        field = "epochs";
        steps = whole_steps(t->epochs * (double)samples_per_epoch / batch);
    } else {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "training: one of steps, tokens and epochs is needed");
    }
    /* Written so that NaN fails. */
    if (!(steps >= 1 && steps <= STEPS_MAX)) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "training.%s: makes %g steps; it has to be 1 to %g", field, steps,
                         STEPS_MAX);
    }
    *out = t->has_steps ? t->steps : (int64_t)steps;
    return 0;
}

double plan_step_seconds(const Plan *plan)
{
    if (plan->cost) {
        return plan->cost->step_s;
    }
    if (plan->peak_flops <= 0) {
        return 0;
    }
    const TrainingSpec *t = plan->spec->training;
    double tokens = (double)t->global_batch_size * (double)t->seq_len;
    double rate = plan->peak_flops * (double)plan->mesh->num_ranks * PLAN_ASSUMED_MFU;
    return tokens * plan->flops_per_token / rate;
}
