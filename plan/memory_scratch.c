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

/* What each backend's formulas are of, on one tensor rank. */
struct shape {
    double batch, seq_len, heads, head_dim, hidden;
    double rows, own_rows; /* of the micro-batch; of the residual stream */
    double norms;          /* parameters of a norm */
    double wide;           /* bytes of an element of sums */
    bool qk_norm, positions;
    bool low; /* activations are narrower than sums */
};

static struct shape shape_of(const ModelConfig *c, const JobSpec *spec,
                             const struct memory_load *load)
{
    const TrainingSpec *t = spec->training;
    int64_t tensor = spec->parallel->layout->tensor;
    return (struct shape){.batch = (double)t->micro_batch_size,
                          .seq_len = (double)t->seq_len,
                          .heads = (double)((c->num_attention_heads + tensor - 1) / tensor),
                          .head_dim = (double)c->head_dim,
                          .hidden = (double)c->hidden_size,
                          .rows = memory_rows(spec),
                          .own_rows = memory_own_rows(spec),
                          .norms = load->layer_norm ? 2 : 1,
                          .wide = memory_stat_size(t),
                          .qk_norm = load->qk_norm,
                          .positions = load->positions,
                          .low = memory_stat_size(t) > (double)memory_element_size(t)};
}

/* Two tiles of scores for each thread and, in bf16, sums of a tile's rows and of a key head's
 * gradients; partial gradients of a norm's weights for each 64 rows. */
static double cpu_workspace(const struct shape *s, int64_t threads)
{
    double num = (double)(threads > 1 ? threads : 1);
    double sums = s->low ? (ATTENTION_TILE + 2 * s->seq_len) * s->head_dim : 0;
    double attention = num * (2 * ATTENTION_TILE * s->seq_len + sums);
    double norm = blocks_of(s->own_rows) * s->hidden * s->norms;
    double heads_norm = s->qk_norm ? blocks_of(s->rows * s->heads) * s->head_dim : 0;
    return memory_piece(most(attention, most(norm, heads_norm)), s->wide);
}

static double ref_workspace(const struct shape *s)
{
    double t = s->seq_len, e = s->head_dim;
    return memory_piece(t + e + 2 * t * e, sizeof(double));
}

/* ---- kernels of the CUDA backend (kernels/workspace.h has the same formulas) ---- */

#define CUDA_ALIGN 256
#define CUDA_NORM_PARTS 396
#define CUDA_EMBED_PIECE 64
#define CUDA_SQUARES_PARTS 528
#define CUDA_SQUARES_SPANS 192

static double pieces_of(double n, double size)
{
    double whole = (double)(int64_t)(n / size);
    return whole * size < n ? whole + 1 : whole;
}

static double aligned(double bytes)
{
    return CUDA_ALIGN * pieces_of(bytes, CUDA_ALIGN);
}

static double cuda_norm(double rows, double width)
{
    return (rows < CUDA_NORM_PARTS ? rows : CUDA_NORM_PARTS) * width * sizeof(float);
}

static double cuda_embed(double rows, double width)
{
    double pieces = rows > CUDA_EMBED_PIECE ? 2 * pieces_of(rows, CUDA_EMBED_PIECE) : 0;
    return 2 * aligned(rows * sizeof(uint64_t)) + aligned(pieces * width * sizeof(float));
}

static double cuda_attention(const struct shape *s)
{
    return aligned(s->batch * s->heads * s->seq_len * sizeof(float)) +
           aligned(s->batch * pieces_of(s->seq_len, ATTENTION_TILE) * 2 * sizeof(int32_t));
}

static double cuda_workspace(const struct shape *s)
{
    double bytes = most(cuda_attention(s), s->norms * cuda_norm(s->own_rows, s->hidden));
    bytes = most(bytes, cuda_embed(s->rows, s->hidden));
    bytes = most(bytes, s->positions ? cuda_embed(s->own_rows, s->hidden) : 0);
    bytes = most(bytes, s->qk_norm ? cuda_norm(s->rows * s->heads, s->head_dim) : 0);
    return memory_piece(bytes, 1);
}

static double workspace(const ModelConfig *c, const JobSpec *spec, const struct memory_load *load)
{
    struct shape s = shape_of(c, spec, load);
    return strcmp(load->backend, "cpu") == 0    ? cpu_workspace(&s, load->threads)
           : strcmp(load->backend, "ref") == 0  ? ref_workspace(&s)
           : strcmp(load->backend, "cuda") == 0 ? cuda_workspace(&s)
                                                : 0;
}

/* The norm's words, and room for sums of squares: on hosts one for each run of elements, of which
 * there are no more than tensors. */
static double squares(const struct memory_load *load)
{
    double runs = (double)(load->num_params > 1 ? load->num_params : 1);
    bool cuda = strcmp(load->backend, "cuda") == 0;
    double sums = cuda ? pieces_of(runs, CUDA_SQUARES_SPANS) * CUDA_SQUARES_PARTS : runs;
    return memory_piece(MEMORY_NORM_WORDS + sums, sizeof(double));
}

/* ---- batch and tables ------------------------------------------------------------------------ */

/* Ids and targets, of packed rows positions and segments, too. */
static double tokens(const JobSpec *spec, const struct memory_load *load)
{
    return memory_piece(memory_rows(spec) * (load->packed ? 4 : 2), sizeof(int32_t));
}

/* RoPE's two tables or learned positions' numbers, each row's loss and their sum, the norm's. */
static double batch(const ModelConfig *c, const JobSpec *spec, const struct memory_load *load)
{
    double size = memory_stat_size(spec->training);
    double rows = memory_rows(spec), half = (double)(c->head_dim / 2);
    double tables = load->positions
                        ? memory_piece(rows, sizeof(int32_t))
                        : 2 * memory_piece((double)spec->training->seq_len * half, size);
    return tokens(spec, load) + tables + memory_piece(rows, sizeof(double)) +
           memory_piece(1, sizeof(double)) + squares(load);
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
static double tensor_staging(const ModelConfig *c, const JobSpec *spec)
{
    const ParallelSpec *l = spec->parallel->layout;
    double size = (double)memory_element_size(spec->training);
    double grad = (double)memory_grad_size(spec->training);
    double d = (double)c->hidden_size, rows = 0, heads = 0;
    if (l->sequence_parallel) {
        rows = most(memory_own_rows(spec) * d * size, l->data == 1 ? 8 * d * grad : 0);
    }
    if (l->tensor > c->num_key_value_heads) {
        heads = 2 * SMALL_BYTES;
        heads += l->data == 1 ? staged(2 * d * (double)c->head_dim * grad) : 0;
    }
    return l->tensor == 1 ? 0 : staged(rows) + heads + 2 * SMALL_BYTES;
}

/* A bound: small pieces are touched whole by none, and often not all. */
static double staging(const ModelConfig *c, const JobSpec *spec, const struct memory_load *load)
{
    const ParallelSpec *l = spec->parallel->layout;
    double size = (double)memory_element_size(spec->training);
    double shards = (double)layout_shards(l), bytes = 2 * 2 * SMALL_BYTES; /* loss, saves */
    if (load->num_ranks <= 1) {
        return 0;
    }
    bytes += tensor_staging(c, spec);
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
    if (!load->backend) {
        return; /* of what is in the fixed size */
    }
    out->words = memory_piece(MEMORY_WORDS + (double)load->num_ranks, sizeof(double));
    out->staging = load->gpu ? 0 : staging(config, spec, load); /* NCCL's is in the fixed size */
    out->workspace = workspace(config, spec, load);
    out->batch = batch(config, spec, load);
    out->heap = rows_heap(spec, load);
    out->host = host(spec, load);
}
