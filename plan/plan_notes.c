/* What a plan says beside its figures. */
#include "plan/plan_parts.h"

#include <stdio.h>

#include "model/config.h"
#include "plan/layout_rules.h"
#include "plan/spec_check.h"

/* What a layout does that its sizes don't say. */
static void add_zero_notes(Plan *plan, const ParallelSpec *l)
{
    static const char *const words[] = {
        "ZeRO-1: the optimizer's state is shared out; new weights are gathered while the next step "
        "begins",
        "ZeRO-2: gradients are shared out after every micro-batch, new weights gathered while the "
        "next step begins",
        "ZeRO-3: gradients are shared out after every micro-batch; weights are gathered unit by "
        "unit, the next one's while one is at work"};
    int64_t shards = layout_shards(l);
    if (l->zero_stage > 0 && shards == 1) {
        plan_add_note(plan, "parallel.zero_stage shares nothing: there is one rank to a shard");
    } else if (l->zero_stage > 0) {
        plan_add_note(plan, "%s", words[l->zero_stage - 1]);
    }
    if (shards > 1 && shards < l->data) {
        plan_add_note(plan,
                      "hybrid: %lld blocks of %lld data ranks hold everything each; gradients are "
                      "summed across them once a step",
                      (long long)(l->data / shards), (long long)shards);
    }
}

static void add_tensor_notes(Plan *plan, const ParallelSpec *l)
{
    const ModelConfig *c = plan->model->config;
    if (l->sequence_parallel && l->tensor == 1) {
        plan_add_note(plan, "parallel.sequence_parallel does nothing with parallel.tensor 1");
    }
    if (l->tensor > c->num_key_value_heads) {
        plan_add_note(plan,
                      "each of the %lld key/value heads lies on %lld tensor ranks, which sum its "
                      "gradients",
                      (long long)c->num_key_value_heads,
                      (long long)(l->tensor / c->num_key_value_heads));
    }
    if (c->vocab_size % l->tensor != 0) {
        plan_add_note(plan,
                      "a vocabulary of %lld lies on %lld tensor ranks as %lld rows each, what "
                      "is over is zero and never stored",
                      (long long)c->vocab_size, (long long)l->tensor,
                      (long long)((c->vocab_size + l->tensor - 1) / l->tensor));
    }
}

static void add_layout_notes(Plan *plan)
{
    const ParallelSpec *l = spec_layout(plan->spec);
    add_zero_notes(plan, l);
    add_tensor_notes(plan, l);
    if (plan->mesh->data > 1 && plan->n_stages == 1 && plan->stages[0]->n_actions > 0) {
        plan_add_note(plan, "gradients are summed over the ranks while the backward pass runs");
    }
}

/* Published models carry the dropout that they were once trained with. */
static void add_dropout_note(Plan *plan)
{
    double asked = config_dropout(plan->model->config), ours = plan->spec->training->dropout;
    if (asked != ours && asked > 0) {
        plan_add_note(plan,
                      "the model's config asks for dropout %.3g; this job trains with "
                      "training.dropout %.3g",
                      asked, ours);
    }
}

/* The default is 2000, whatever the length. */
static void add_warmup_note(Plan *plan, int64_t warmup)
{
    int64_t steps = plan->total_steps, tenth = steps / 10;
    plan_add_note(plan,
                  "the rate %s: training.lr_schedule.warmup_steps is %lld, the run ends at step "
                  "%lld; %lld would be a tenth of it",
                  warmup > steps ? "never reaches lr" : "reaches lr in the last step alone",
                  (long long)warmup, (long long)steps, (long long)tenth);
}

static void add_length_notes(Plan *plan, const TrainingSpec *t)
{
    double samples = (double)plan->total_steps * (double)t->global_batch_size;
    double passes = samples / (double)plan->samples_per_epoch;
    char words[32];
    snprintf(words, sizeof words, passes < 999.5 ? "%.3g" : "%.0f", passes);
    plan_add_note(plan, "%s passes over the data (%lld samples of %lld tokens)", words,
                  (long long)plan->samples_per_epoch, (long long)t->seq_len);
    if (t->global_batch_size > plan->samples_per_epoch) {
        plan_add_note(plan,
                      "a step of %lld samples is more than one pass: samples repeat within it",
                      (long long)t->global_batch_size);
    }
}

void plan_add_notes(Plan *plan)
{
    const TrainingSpec *t = plan->spec->training;
    if (plan->samples_per_epoch > 0) {
        add_length_notes(plan, t);
        plan_add_data_notes(plan);
    } else {
        plan_add_note(
            plan,
            "data.train: %s is not here: neither its ids nor the number of passes over it "
            "are known",
            plan->spec->data->train[0]->path);
    }
    if (t->lr_schedule && t->lr_schedule->warmup_steps >= plan->total_steps) {
        add_warmup_note(plan, t->lr_schedule->warmup_steps);
    }
    add_dropout_note(plan);
    add_layout_notes(plan);
    if (plan->peak_flops <= 0) {
        plan_add_note(plan, "the device's peak is not measured: no MFU");
    }
}
