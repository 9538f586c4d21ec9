/* What is kept between the forward and the backward pass. */
#include "plan/memory_activations.h"

#include <string.h>

#include "model/family.h"
#include "plan/layout_rules.h"
#include "plan/memory.h"

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* Rows of a micro-batch on one rank. */
static double local_rows(const JobSpec *spec)
{
    const TrainingSpec *t = spec->training;
    return (double)t->micro_batch_size * (double)t->seq_len /
           (double)spec->parallel->layout->context;
}

/* Statistics are kept in fp32 at least. */
static double stat_size(const TrainingSpec *training)
{
    int64_t size = memory_element_size(training);
    return size < 4 ? 4 : (double)size;
}

/* Elements of one saved tensor a row, on one tensor rank. */
static double local_width(const struct family_saved *s, const JobSpec *spec)
{
    const ParallelSpec *l = spec->parallel->layout;
    double width = (double)s->width + (double)s->per_key * (double)spec->training->seq_len;
    if (s->parts > 0) {
        int64_t parts = (s->parts + l->tensor - 1) / l->tensor;
        return width / (double)s->parts * (double)parts;
    }
    return l->sequence_parallel ? width / (double)l->tensor : width;
}

double memory_block_bytes(const ModelConfig *config, const JobSpec *spec, double *cheap)
{
    struct family_saved saved[FAMILY_SAVED_MAX];
    size_t num = family_find(config->model_type)->saved(config, saved);
    double size = (double)memory_element_size(spec->training), all = 0;
    *cheap = 0;
    for (size_t i = 0; i < num; i++) {
        double each = saved[i].mask ? 1 : saved[i].stat ? stat_size(spec->training) : size;
        double bytes = local_rows(spec) * local_width(&saved[i], spec) * each;
        all += bytes;
        *cheap += saved[i].cheap ? bytes : 0;
    }
    return all;
}

/* Source: Narayanan et al. 2021 (1F1B, interleaved), Qi et al. 2023 and 2024 (zero bubble), the
 * DeepSeek-V3 report (DualPipe). */
double memory_in_flight(const JobSpec *spec, int32_t stage)
{
    const ParallelSpec *l = spec->parallel->layout;
    double m = (double)layout_micro_batches(spec), p = (double)l->pipeline;
    double v = (double)l->virtual_stages, r = (double)stage;
    if (l->pipeline == 1) {
        return 1;
    }
    if (layout_schedule_is(l, "gpipe")) {
        return m;
    }
    if (layout_schedule_is(l, "interleaved")) {
        return least(m, (2 * (p - r - 1) + (v - 1) * p + 1) / v);
    }
    if (layout_schedule_is(l, "zb-h2")) {
        return least(m, 2 * (p - r) - 1);
    }
    if (layout_schedule_is(l, "zb-v")) {
        return least(m, p);
    }
    if (layout_schedule_is(l, "dualpipe")) {
        /* A rank holds two stages: p + 1 activations of one are (p + 1) / 2 of both. */
        return least(m, (p + 1) / 2);
    }
    return least(m, p - r);
}

/* What one micro-batch leaves behind in a stage's blocks, and what is there once, while one block
 * or one group of blocks runs backward. */
static double blocks_bytes(const ModelConfig *config, const JobSpec *spec, double layers,
                           double in_flight)
{
    const RecomputeSpec *r = spec->training->recompute;
    const char *mode = r ? r->mode : "none";
    double cheap, block = memory_block_bytes(config, spec, &cheap);
    if (strcmp(mode, "selective") == 0) {
        return in_flight * layers * (block - cheap);
    }
    if (strcmp(mode, "full") != 0 || layers <= 0) {
        return in_flight * layers * block;
    }
    const ParallelSpec *l = spec->parallel->layout;
    double every = least((double)r->every, layers);
    double input = local_rows(spec) * (double)config->hidden_size *
                   (double)memory_element_size(spec->training) /
                   (double)(l->sequence_parallel ? l->tensor : 1);
    double kept = in_flight * input * layers / every;
    /* Never more than keeping all: with one layer and micro-batch there is nothing to gain. */
    return least(kept + every * block, in_flight * layers * block);
}

double memory_activations(const ModelConfig *config, const JobSpec *spec,
                          const struct memory_load *load)
{
    double in_flight = memory_in_flight(spec, load->stage);
    double bytes = blocks_bytes(config, spec, (double)load->num_layers, in_flight);
    if (load->has_head) {
        /* The head keeps its input, the normed input and a statistic. */
        const ParallelSpec *l = spec->parallel->layout;
        double split = l->sequence_parallel ? (double)l->tensor : 1;
        double size = (double)memory_element_size(spec->training);
        bytes += in_flight * local_rows(spec) *
                 (2.0 * (double)config->hidden_size * size + stat_size(spec->training)) / split;
    }
    return bytes;
}

double memory_logits(const ModelConfig *config, const JobSpec *spec, const struct memory_load *load)
{
    int64_t t = spec->parallel->layout->tensor;
    double columns = (double)((config->vocab_size + t - 1) / t);
    return load->has_head ? local_rows(spec) * columns * stat_size(spec->training) : 0;
}
