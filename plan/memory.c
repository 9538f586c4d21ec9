#include "plan/memory.h"

#include <string.h>

#include "plan/layout_rules.h"
#include "plan/memory_parts.h"
#include "plan/spec_check.h"

static bool has_masters(const TrainingSpec *t)
{
    return strcmp(t->precision, "bf16") == 0 || strcmp(t->precision, "fp16") == 0;
}

int64_t memory_element_size(const TrainingSpec *training)
{
    return strcmp(training->precision, "fp64") == 0 ? 8 : has_masters(training) ? 2 : 4;
}

int64_t memory_grad_size(const TrainingSpec *training)
{
    if (strcmp(training->grad_dtype, "bf16") == 0) {
        return 2;
    }
    return strcmp(training->precision, "fp64") == 0 ? 8 : 4;
}

int64_t memory_optimizer_size(const TrainingSpec *training)
{
    int64_t full = strcmp(training->precision, "fp64") == 0 ? 8 : 4;
    int64_t moments = strcmp(training->optimizer->name, "adamw") == 0 ? 2 * full : 0;
    return moments + (has_masters(training) ? full : 0);
}

int64_t memory_state_size(const TrainingSpec *training)
{
    return memory_element_size(training) + memory_grad_size(training) +
           memory_optimizer_size(training);
}

/* Sizes of a job file can be anything: the products are taken in double (exact below 2^53) and
 * end at the cap. */
static int64_t to_bytes(double bytes)
{
    return bytes < (double)MEMORY_MAX_BYTES ? (int64_t)bytes : MEMORY_MAX_BYTES;
}

/* As the saver does it: no copy where the only checkpoint is the last. Of GPUs' memory there always
 * is one, through which it is filled and saved. */
static bool has_snapshot(const JobSpec *spec, const struct memory_load *load)
{
    if (load->gpu && load->backend) {
        return true;
    }
    return spec->checkpoint && spec->checkpoint->async && spec_checkpoint_interval(spec) != 0;
}

/* ---- state ---------------------------------------------------------------------------------- */

/* Elements that a rank keeps of what is shared from a ZeRO stage on. Experts lie on fewer data
 * ranks: the expert axis is carved from data x context. */
static double shared_numel(const struct memory_load *load, const ParallelSpec *l,
                           int64_t from_stage)
{
    if (l->zero_stage < from_stage) {
        return (double)load->dense_numel + (double)load->expert_numel;
    }
    int64_t shards = layout_shards(l), replicas = l->data * l->context / l->expert;
    int64_t expert_shards = replicas < shards ? replicas : shards;
    return (double)((load->dense_numel + shards - 1) / shards) +
           (double)((load->expert_numel + expert_shards - 1) / expert_shards);
}

/* From ZeRO-2 on the slots of whole gradients, with ZeRO-3 those of whole weights, too: as the
 * stage has them; where it has no actions yet, two of the largest unit. */
static void add_slots(struct memory_parts *out, const struct memory_load *load, const JobSpec *spec)
{
    const ParallelSpec *l = spec->parallel->layout;
    double two = 2 * (double)load->unit_numel;
    if (layout_shards(l) == 1) {
        return;
    }
    if (l->zero_stage >= 2) {
        out->grad_slots = (load->grad_slots > 0 ? (double)load->grad_slots : two) *
                          (double)memory_grad_size(spec->training);
    }
    if (l->zero_stage >= 3) {
        out->weight_slots = (load->weight_slots > 0 ? (double)load->weight_slots : two) *
                            (double)memory_element_size(spec->training);
    }
}

static void add_state(struct memory_parts *out, const struct memory_load *load, const JobSpec *spec)
{
    const TrainingSpec *t = spec->training;
    const ParallelSpec *l = spec->parallel->layout;
    double kept = shared_numel(load, l, 3) * (double)memory_element_size(t);
    double full = strcmp(t->precision, "fp64") == 0 ? 8 : 4;
    double moment = strcmp(t->optimizer->name, "adamw") == 0 ? full : 0;
    double owned = shared_numel(load, l, 1);
    /* PipeDream keeps the weights that each micro-batch in flight started with. */
    double versions = layout_schedule_is(l, "pipedream") ? memory_in_flight(spec, load->stage) : 1;
    out->weights = kept * versions;
    out->grads = shared_numel(load, l, 2) * (double)memory_grad_size(t);
    out->exp_avg = out->exp_avg_sq = owned * moment;
    out->masters = has_masters(t) ? owned * full : 0;
    /* Saved is what the rank owns, in full precision. */
    out->snapshot = has_snapshot(spec, load) ? owned * (full + 2 * moment) : 0;
}

void memory_parts_of(struct memory_parts *out, const ModelConfig *config, const JobSpec *spec,
                     const struct memory_load *load)
{
    *out = (struct memory_parts){0};
    add_state(out, load, spec);
    add_slots(out, load, spec);
    memory_add_activations(out, config, spec, load);
    memory_add_scratch(out, config, spec, load);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static double sum_of(const struct memory_parts *p)
{
    return p->weights + p->grads + p->exp_avg + p->exp_avg_sq + p->masters + p->weight_slots +
           p->grad_slots + p->activations + p->backward + p->logits + p->summed + p->words +
           p->staging + p->workspace + p->batch;
}

/* A part that may be none is left out then. */
static void put(int64_t *bytes, protobuf_c_boolean *has, double value)
{
    *bytes = to_bytes(value);
    *has = *bytes > 0;
}

void memory_estimate(MemoryEstimate *out, const ModelConfig *config, const JobSpec *spec,
                     const struct memory_load *load)
{
    struct memory_parts p;
    memory_parts_of(&p, config, spec, load);
    /* A GPU holds neither the batch as it is read nor a checkpoint's copy. */
    double fixed = load->gpu ? (double)memory_gpu_fixed_bytes(config, spec->parallel->layout) +
                                   sum_of(&p) * MEMORY_FRAGMENTATION
                             : (double)MEMORY_FIXED_BYTES + p.heap;
    double host = p.host + p.snapshot;
    memory_estimate__init(out);
    out->has_params_bytes = out->has_grads_bytes = out->has_optimizer_bytes = 1;
    out->has_activations_bytes = out->has_logits_bytes = out->has_overhead_bytes = 1;
    out->has_total_bytes = out->has_snapshot_bytes = 1;
    out->params_bytes = to_bytes(p.weights);
    out->grads_bytes = to_bytes(p.grads);
    out->optimizer_bytes = to_bytes(p.exp_avg + p.exp_avg_sq + p.masters);
    out->activations_bytes = to_bytes(p.activations);
    out->logits_bytes = to_bytes(p.logits);
    out->snapshot_bytes = to_bytes(p.snapshot);
    out->overhead_bytes = to_bytes(fixed);
    put(&out->gathered_bytes, &out->has_gathered_bytes, p.weight_slots + p.grad_slots);
    put(&out->backward_bytes, &out->has_backward_bytes, p.backward);
    put(&out->exchange_bytes, &out->has_exchange_bytes, p.summed + p.words + p.staging);
    put(&out->workspace_bytes, &out->has_workspace_bytes,
        p.workspace + p.batch + (load->gpu ? 0 : p.host));
    out->total_bytes = out->params_bytes + out->grads_bytes + out->optimizer_bytes +
                       out->activations_bytes + out->logits_bytes + out->gathered_bytes +
                       out->backward_bytes + out->exchange_bytes + out->workspace_bytes +
                       out->overhead_bytes;
    if (load->gpu) {
        put(&out->host_bytes, &out->has_host_bytes, host);
    } else {
        out->total_bytes += out->snapshot_bytes;
    }
}
