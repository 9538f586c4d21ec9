/* What is kept between the forward and the backward pass, and what a backward pass needs besides:
 * the same pieces as runtime/layers/acts.c lays out, where the runtime can run the layout. */
#include <string.h>

#include "model/family.h"
#include "plan/layout_rules.h"
#include "plan/memory_parts.h"

static double least(double a, double b)
{
    return a < b ? a : b;
}

static double most(double a, double b)
{
    return a > b ? a : b;
}

static double up(double a, double b)
{
    double whole = (double)(int64_t)least(a / b, (double)MEMORY_MAX_BYTES);
    return whole * b < a ? whole + 1 : whole;
}

static bool is_cut(const JobSpec *spec)
{
    const ParallelSpec *l = spec->parallel->layout;
    return l->sequence_parallel && l->tensor > 1;
}

double memory_rows(const JobSpec *spec)
{
    const TrainingSpec *t = spec->training;
    return (double)t->micro_batch_size * (double)t->seq_len /
           (double)spec->parallel->layout->context;
}

double memory_own_rows(const JobSpec *spec)
{
    double rows = memory_rows(spec);
    return is_cut(spec) ? up(rows, (double)spec->parallel->layout->tensor) : rows;
}

double memory_all_rows(const JobSpec *spec)
{
    double own = memory_own_rows(spec);
    return is_cut(spec) ? own * (double)spec->parallel->layout->tensor : own;
}

double memory_stat_size(const TrainingSpec *training)
{
    int64_t size = memory_element_size(training);
    return size < 4 ? 4 : (double)size;
}

double memory_piece(double elements, double size)
{
    return 64 * up(elements * size, 64);
}

/* ---- a block --------------------------------------------------------------------------------- */

/* Elements of one saved tensor, on one tensor rank. */
static double local_numel(const struct family_saved *s, const JobSpec *spec)
{
    const ParallelSpec *l = spec->parallel->layout;
    double width = (double)s->width + (double)s->per_key * (double)spec->training->seq_len;
    if (s->parts > 0) {
        int64_t parts = (s->parts + l->tensor - 1) / l->tensor;
        return memory_rows(spec) * width / (double)s->parts * (double)parts;
    }
    return memory_own_rows(spec) * width;
}

double memory_block_bytes(const ModelConfig *config, const JobSpec *spec,
                          enum family_attention attention, double *cheap)
{
    struct family_saved saved[FAMILY_SAVED_MAX];
    size_t num = family_find(config->model_type)->saved(config, attention, saved);
    double size = (double)memory_element_size(spec->training), all = 0;
    *cheap = 0;
    for (size_t i = 0; i < num; i++) {
        double each = saved[i].mask ? 1 : saved[i].stat ? memory_stat_size(spec->training) : size;
        double bytes = memory_piece(local_numel(&saved[i], spec), each);
        all += bytes;
        *cheap += saved[i].cheap ? bytes : 0;
    }
    return all;
}

/* ---- over the micro-batches in flight -------------------------------------------------------- */

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

static bool recomputes(const JobSpec *spec, const char *mode)
{
    const RecomputeSpec *r = spec->training->recompute;
    return r && strcmp(r->mode, mode) == 0;
}

/* What one micro-batch leaves behind in a stage's blocks, and what is there once, while one block
 * or one group of blocks runs backward. */
static double blocks_bytes(const ModelConfig *config, const JobSpec *spec,
                           const struct memory_load *load, double in_flight)
{
    double layers = (double)load->num_layers, cheap;
    double block = memory_block_bytes(config, spec, load->attention, &cheap);
    if (recomputes(spec, "selective")) {
        return in_flight * layers * (block - cheap);
    }
    if (!recomputes(spec, "full") || layers <= 0) {
        return in_flight * layers * block;
    }
    double every = least((double)spec->training->recompute->every, layers);
    double input = memory_own_rows(spec) * (double)config->hidden_size *
                   (double)memory_element_size(spec->training);
    double kept = in_flight * input * layers / every;
    /* Never more than keeping all: with one layer and micro-batch there is nothing to gain. */
    return least(kept + every * block, in_flight * layers * block);
}

/* The head keeps its input, the normed input and one or two statistics. */
static double head_bytes(const ModelConfig *config, const JobSpec *spec,
                         const struct memory_load *load)
{
    double own = memory_own_rows(spec), stats = load->layer_norm ? 2 : 1;
    double size = (double)memory_element_size(spec->training);
    return 2 * memory_piece(own * (double)config->hidden_size, size) +
           stats * memory_piece(own, memory_stat_size(spec->training));
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Of an MLP's hidden row, or of attention's rows: a block is in one of them. */
static double inner_gradients(const ModelConfig *c, const JobSpec *spec, double size)
{
    int64_t t = spec->parallel->layout->tensor;
    double rows = memory_rows(spec), e = (double)c->head_dim;
    double heads = (double)((c->num_attention_heads + t - 1) / t);
    double kv = (double)((c->num_key_value_heads + t - 1) / t);
    double ffn = (double)((c->intermediate_size + t - 1) / t);
    double attention =
        2 * memory_piece(rows * heads * e, size) + 2 * memory_piece(rows * kv * e, size);
    return most(attention, memory_piece(rows * ffn, size));
}

/* Two places of the residual stream's gradient by turns, that of a normed input (which without
 * sequence parallel is summed where it lies), and with sequence parallel two gathered rows. */
static double backward_bytes(const ModelConfig *c, const JobSpec *spec,
                             const struct memory_load *load)
{
    double size = (double)memory_element_size(spec->training), d = (double)c->hidden_size, cheap;
    if (load->num_layers <= 0 && !load->has_head) {
        return 0;
    }
    double block = memory_block_bytes(c, spec, load->attention, &cheap);
    if (c->num_experts > 0) {
        return block; /* as large as what the block saved */
    }
    double own = memory_piece(memory_own_rows(spec) * d, size);
    double streams = is_cut(spec) || spec->parallel->layout->tensor == 1 ? 3 : 2;
    double gathered = is_cut(spec) ? 2 * memory_piece(memory_all_rows(spec) * d, size) : 0;
    return streams * own + gathered + inner_gradients(c, spec, size) +
           (recomputes(spec, "selective") ? cheap : 0);
}

void memory_add_activations(struct memory_parts *out, const ModelConfig *config,
                            const JobSpec *spec, const struct memory_load *load)
{
    double in_flight = memory_in_flight(spec, load->stage);
    out->activations = blocks_bytes(config, spec, load, in_flight);
    out->backward = backward_bytes(config, spec, load);
    if (load->has_head) {
        int64_t t = spec->parallel->layout->tensor;
        double columns = (double)memory_logits_columns((config->vocab_size + t - 1) / t);
        out->activations += in_flight * head_bytes(config, spec, load);
        out->logits =
            memory_piece(memory_rows(spec) * columns, (double)memory_element_size(spec->training));
    }
}
