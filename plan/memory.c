#include "plan/memory.h"

#include <string.h>

#include "model/family.h"
#include "plan/spec_check.h"

int64_t memory_element_size(const TrainingSpec *training)
{
    return strcmp(training->precision, "fp64") == 0 ? 8 : 4;
}

static int64_t num_moments(const TrainingSpec *training)
{
    return strcmp(training->optimizer->name, "adamw") == 0 ? 2 : 0;
}

int64_t memory_state_size(const TrainingSpec *training)
{
    return memory_element_size(training) * (2 + num_moments(training));
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
    return spec->checkpoint && spec->checkpoint->async && spec_checkpoint_interval(spec) > 0;
}

void memory_estimate(MemoryEstimate *out, const ModelConfig *config, const JobSpec *spec,
                     int64_t num_params, int64_t num_ranks)
{
    const TrainingSpec *training = spec->training;
    double size = (double)memory_element_size(training);
    double rows = (double)training->micro_batch_size * (double)training->seq_len;
    double block = rows * (double)family_saved_per_token(config) * size;
    /* The head keeps its input, the normed input and a statistic. */
    double head = rows * (2.0 * (double)config->hidden_size + 1.0) * size;
    double logits = rows * (double)config->vocab_size * size;
    double weights = (double)num_params * size;
    double activations = (double)config->num_hidden_layers * block + head;
    double moments = weights * (double)num_moments(training);
    double snapshot = has_snapshot(spec) ? weights + moments : 0;
    double sum = weights * 2 + moments + snapshot + activations + logits + block;

    memory_estimate__init(out);
    out->has_params_bytes = out->has_grads_bytes = out->has_optimizer_bytes = 1;
    out->has_activations_bytes = out->has_logits_bytes = out->has_overhead_bytes = 1;
    out->has_total_bytes = out->has_shared_bytes = out->has_snapshot_bytes = 1;
    out->params_bytes = to_bytes(weights);
    out->grads_bytes = to_bytes(weights);
    out->optimizer_bytes = to_bytes(moments);
    out->activations_bytes = to_bytes(activations);
    out->logits_bytes = to_bytes(logits);
    out->snapshot_bytes = to_bytes(snapshot);
    out->overhead_bytes = to_bytes(block + (double)MEMORY_FIXED_BYTES + sum * MEMORY_FRAGMENTATION);
    out->total_bytes = out->params_bytes + out->grads_bytes + out->optimizer_bytes +
                       out->activations_bytes + out->logits_bytes + out->snapshot_bytes +
                       out->overhead_bytes;
    if (num_ranks > 1) {
        int64_t pages = (out->grads_bytes + 4095) / 4096 * 4096;
        out->shared_bytes = pages + MEMORY_COMM_BYTES;
    }
}
