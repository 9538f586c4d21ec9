#include "plan/memory.h"

#include <string.h>

#include "plan/layout_rules.h"
#include "plan/memory_activations.h"
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

/* As the saver does it: no copy where the only checkpoint is the last. */
static bool has_snapshot(const JobSpec *spec)
{
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
static double gathered_bytes(const struct memory_load *load, const JobSpec *spec)
{
    const ParallelSpec *l = spec->parallel->layout;
    double two = 2 * (double)load->unit_numel, bytes = 0;
    if (layout_shards(l) == 1) {
        return 0;
    }
    if (l->zero_stage >= 2) {
        bytes += (load->grad_slots > 0 ? (double)load->grad_slots : two) *
                 (double)memory_grad_size(spec->training);
    }
    if (l->zero_stage >= 3) {
        bytes += (load->weight_slots > 0 ? (double)load->weight_slots : two) *
                 (double)memory_element_size(spec->training);
    }
    return bytes;
}

struct state {
    double weights, grads, optimizer, snapshot;
};

static struct state state_of(const struct memory_load *load, const JobSpec *spec)
{
    const TrainingSpec *t = spec->training;
    const ParallelSpec *l = spec->parallel->layout;
    struct state s;
    double kept = shared_numel(load, l, 3) * (double)memory_element_size(t);
    /* PipeDream keeps the weights that each micro-batch in flight started with. */
    double versions = layout_schedule_is(l, "pipedream") ? memory_in_flight(spec, load->stage) : 1;
    s.weights = kept * versions;
    s.grads = shared_numel(load, l, 2) * (double)memory_grad_size(t);
    s.optimizer = shared_numel(load, l, 1) * (double)memory_optimizer_size(t);
    /* A rank copies what is its own, of the weights too. The fp32 weights stand in for those that
     * are rounded from them. */
    double own = shared_numel(load, l, 1) * (double)memory_element_size(t);
    s.snapshot = has_snapshot(spec) ? s.optimizer + (has_masters(t) ? 0 : own) : 0;
    return s;
}

/* ---- all of it ------------------------------------------------------------------------------ */

void memory_estimate(MemoryEstimate *out, const ModelConfig *config, const JobSpec *spec,
                     const struct memory_load *load)
{
    struct state s = state_of(load, spec);
    double cheap, block = load->num_layers > 0 ? memory_block_bytes(config, spec, &cheap) : 0;
    double activations = memory_activations(config, spec, load);
    double logits = memory_logits(config, spec, load);
    double gathered = gathered_bytes(load, spec);
    double fixed = (double)(load->gpu ? MEMORY_FIXED_GPU_BYTES : MEMORY_FIXED_BYTES);
    double sum =
        s.weights + s.grads + s.optimizer + s.snapshot + activations + logits + block + gathered;

    memory_estimate__init(out);
    out->has_params_bytes = out->has_grads_bytes = out->has_optimizer_bytes = 1;
    out->has_activations_bytes = out->has_logits_bytes = out->has_overhead_bytes = 1;
    out->has_total_bytes = out->has_snapshot_bytes = 1;
    out->has_gathered_bytes = gathered > 0;
    out->params_bytes = to_bytes(s.weights);
    out->grads_bytes = to_bytes(s.grads);
    out->optimizer_bytes = to_bytes(s.optimizer);
    out->activations_bytes = to_bytes(activations);
    out->logits_bytes = to_bytes(logits);
    out->snapshot_bytes = to_bytes(s.snapshot);
    out->gathered_bytes = to_bytes(gathered);
    out->overhead_bytes = to_bytes(block + fixed + sum * MEMORY_FRAGMENTATION);
    out->total_bytes = out->params_bytes + out->grads_bytes + out->optimizer_bytes +
                       out->activations_bytes + out->logits_bytes + out->snapshot_bytes +
                       out->gathered_bytes + out->overhead_bytes;
}
