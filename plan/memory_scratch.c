/* The small pieces: what ranks exchange besides gradients and weights, scratch space of kernels,
 * the batch and tables. Each as its owner in the runtime asks for it; a rank that finds otherwise
 * fails when it sets its memory aside. */
#include <string.h>

#include "plan/layout_rules.h"
#include "plan/memory_parts.h"

/* ---- kernels (kernels/kernels.h: *_workspace) ------------------------------------------------ */

#define ATTENTION_TILE 64
#define NORM_ROWS 64

static double most(double a, double b)
{
    return a > b ? a : b;
}

static double blocks_of(double rows)
{
    double whole = (double)(int64_t)(rows / NORM_ROWS);
    return whole * NORM_ROWS < rows ? whole + 1 : whole;
}

/* Two tiles of scores for each thread; partial gradients of a norm's weights for each 64 rows. */
static double cpu_workspace(const ModelConfig *c, const JobSpec *spec,
                            const struct memory_load *load, double size)
{
    int64_t t = spec->parallel->layout->tensor;
    double heads = (double)((c->num_attention_heads + t - 1) / t);
    double threads = (double)(load->threads > 1 ? load->threads : 1);
    double attention = threads * 2 * ATTENTION_TILE * (double)spec->training->seq_len;
    double norm =
        blocks_of(memory_own_rows(spec)) * (double)c->hidden_size * (load->layer_norm ? 2 : 1);
    double heads_norm =
        load->qk_norm ? blocks_of(memory_rows(spec) * heads) * (double)c->head_dim : 0;
    return memory_piece(most(attention, most(norm, heads_norm)), size);
}

static double ref_workspace(const ModelConfig *c, const JobSpec *spec)
{
    double t = (double)spec->training->seq_len, e = (double)c->head_dim;
    return memory_piece(t + e + 2 * t * e, sizeof(double));
}

static double workspace(const ModelConfig *c, const JobSpec *spec, const struct memory_load *load,
                        double size)
{
    const char *backend = load->backend ? load->backend : "";
    return strcmp(backend, "cpu") == 0   ? cpu_workspace(c, spec, load, size)
           : strcmp(backend, "ref") == 0 ? ref_workspace(c, spec)
                                         : 0;
}

/* ---- batch and tables ------------------------------------------------------------------------ */

/* Ids and targets, of packed rows positions and segments, too. */
static double tokens(const JobSpec *spec, const struct memory_load *load)
{
    return memory_piece(memory_rows(spec) * (load->packed ? 4 : 2), sizeof(int32_t));
}

/* RoPE's two tables or learned positions' numbers, each row's loss and their sum, one sum of
 * squares for each tensor at most and eight words for all. */
static double batch(const ModelConfig *c, const JobSpec *spec, const struct memory_load *load,
                    double size)
{
    double rows = memory_rows(spec), half = (double)(c->head_dim / 2);
    double tables = load->positions
                        ? memory_piece(rows, sizeof(int32_t))
                        : 2 * memory_piece((double)spec->training->seq_len * half, size);
    return tokens(spec, load) + tables + memory_piece(rows, sizeof(double)) +
           memory_piece(1, sizeof(double)) +
           memory_piece((double)load->num_params + 8, sizeof(double));
}

/* Two micro-batches by turns, the words of a step, the saver's one. */
static double host(const JobSpec *spec, const struct memory_load *load)
{
    double words = MEMORY_WORD_SETS * (MEMORY_WORDS + (double)load->num_ranks);
    return 2 * tokens(spec, load) + memory_piece(words, sizeof(double)) +
           memory_piece(1, sizeof(double));
}

/* runtime/data/packed_source.c keeps two steps' rows as they were read, at most 64 MiB of them. */
#define ROWS_BYTES (64.0 * 1024 * 1024)

static double rows_heap(const JobSpec *spec, const struct memory_load *load)
{
    const TrainingSpec *t = spec->training;
    double rows = 2 * (double)t->global_batch_size / (double)spec->parallel->layout->data;
    double bytes = rows * (double)t->seq_len * 4 * sizeof(int32_t);
    return !load->packed ? 0 : bytes < ROWS_BYTES ? bytes : ROWS_BYTES;
}

/* ---- exchange -------------------------------------------------------------------------------- */

/* runtime/comm/comm_host_segment.h: two chunks by turns, and two small pieces. */
#define CHUNK_BYTES (512.0 * 1024)
#define SMALL_BYTES (16.0 * 1024)

/* What a call with `bytes` outside of the segment goes through. */
static double staged(double bytes)
{
    return bytes <= SMALL_BYTES ? 0 : bytes < 2 * CHUNK_BYTES ? bytes : 2 * CHUNK_BYTES;
}

/* Tensor ranks gather rows; where gradients lie in the segment for no other reason, they also stage
 * those that they sum: of norms and biases, and of copied KV heads. */
static double tensor_staging(const ModelConfig *c, const JobSpec *spec, double size)
{
    const ParallelSpec *l = spec->parallel->layout;
    double d = (double)c->hidden_size, rows = 0, heads = 0;
    if (l->sequence_parallel) {
        rows = most(memory_own_rows(spec) * d * size, l->data == 1 ? 8 * d * size : 0);
    }
    if (l->tensor > c->num_key_value_heads) {
        heads = 2 * SMALL_BYTES;
        heads += l->data == 1 ? staged(2 * d * (double)c->head_dim * size) : 0;
    }
    return l->tensor == 1 ? 0 : staged(rows) + heads + 2 * SMALL_BYTES;
}

/* A bound: small pieces are touched whole by none, and often not all. */
static double staging(const ModelConfig *c, const JobSpec *spec, const struct memory_load *load,
                      double size)
{
    const ParallelSpec *l = spec->parallel->layout;
    double shards = (double)layout_shards(l), bytes = 2 * 2 * SMALL_BYTES; /* loss, saves */
    if (load->num_ranks <= 1) {
        return 0;
    }
    bytes += tensor_staging(c, spec, size);
    bytes += shards > 1 ? 2 * 2 * SMALL_BYTES : 0; /* their two communicators */
    bytes += (double)l->data > shards ? 2 * SMALL_BYTES : 0;
    /* Whole weights are gathered in place, which is not in the segment. */
    if (shards > 1 && (l->zero_stage == 1 || l->zero_stage == 2)) {
        bytes += staged((double)load->bucket_numel / shards * size);
    }
    return bytes;
}

/* As alloc_summed in runtime/layers/model.h says. */
static double summed(const ModelConfig *c, const JobSpec *spec, double size)
{
    if (spec->parallel->layout->tensor == 1) {
        return 0;
    }
    return memory_piece(memory_all_rows(spec) * (double)c->hidden_size, size) +
           memory_piece(3 * memory_rows(spec), sizeof(double));
}

void memory_add_scratch(struct memory_parts *out, const ModelConfig *config, const JobSpec *spec,
                        const struct memory_load *load)
{
    double size = (double)memory_element_size(spec->training);
    out->summed = summed(config, spec, size);
    if (load->gpu || !load->backend) {
        return; /* of what is in the fixed size */
    }
    out->words = memory_piece(MEMORY_WORDS + (double)load->num_ranks, sizeof(double));
    out->staging = staging(config, spec, load, size);
    out->workspace = workspace(config, spec, load, size);
    out->batch = batch(config, spec, load, size);
    out->heap = rows_heap(spec, load);
    out->host = host(spec, load);
}
