/* One launch of each operation: its shape, FLOPs, bytes of device memory and how many kernels of
 * ours it is (kernels/cuda). */
#include <string.h>

#include "plan/launches_parts.h"

/* kernels/workspace.h, kernels/cuda/embed_bwd.cu, column_sum.cu, step.cu. */
#define NORM_PARTS 396
#define EMBED_TILE 2048
#define EMBED_MERGE_WAYS 16
#define EMBED_PIECE 64
#define COLUMN_BLOCKS 528
#define COLUMN_MIN_ROWS 32

const char *const launch_op_names[NUM_LAUNCH_OPS] = {
    "gemm",           "embed_fwd",     "embed_bwd", "rmsnorm_fwd",   "rmsnorm_bwd",
    "layernorm_fwd",  "layernorm_bwd", "rope",      "attention_fwd", "attention_bwd",
    "swiglu_fwd",     "swiglu_bwd",    "add_bias",  "column_sum",    "add",
    "scale",          "cross_entropy", "ce_max",    "ce_sum",        "ce_finish",
    "sum_squares",    "sum_double",    "clip",      "adamw",         "sgd",
    "zero",           "copy",          "upload",    "download",      "all_reduce",
    "reduce_scatter", "all_gather",    "record",    "wait",
};
const char *const launch_kind_names[NUM_LAUNCH_KINDS] = {
    "gemm",      "attention", "norm",          "pointwise", "loss",
    "optimizer", "memory",    "communication", "idle",
};
const char *const launch_place_names[NUM_LAUNCH_PLACES] = {
    "beginning",       "embedding, forward",  "block, forward", "head, forward", "head, backward",
    "block, backward", "embedding, backward", "weights",        "gradients",     "end",
};

enum launch_kind launch_kind(const struct launch *l)
{
    switch (l->op) {
    case LAUNCH_GEMM:
        return LAUNCH_KIND_GEMM;
    case LAUNCH_ATTENTION_FWD:
    case LAUNCH_ATTENTION_BWD:
        return LAUNCH_KIND_ATTENTION;
    case LAUNCH_RMSNORM_FWD:
    case LAUNCH_RMSNORM_BWD:
    case LAUNCH_LAYERNORM_FWD:
    case LAUNCH_LAYERNORM_BWD:
        return LAUNCH_KIND_NORM;
    case LAUNCH_CROSS_ENTROPY:
    case LAUNCH_CE_MAX:
    case LAUNCH_CE_SUM:
    case LAUNCH_CE_FINISH:
        return LAUNCH_KIND_LOSS;
    case LAUNCH_SUM_SQUARES:
    case LAUNCH_SUM_DOUBLE:
    case LAUNCH_CLIP:
    case LAUNCH_SCALE:
    case LAUNCH_ADAMW:
    case LAUNCH_SGD:
        return LAUNCH_KIND_OPTIMIZER;
    case LAUNCH_ZERO:
    case LAUNCH_COPY:
    case LAUNCH_UPLOAD:
    case LAUNCH_DOWNLOAD:
        return LAUNCH_KIND_MEMORY;
    case LAUNCH_ALL_REDUCE:
    case LAUNCH_REDUCE_SCATTER:
    case LAUNCH_ALL_GATHER:
        return LAUNCH_KIND_COMM;
    default:
        return LAUNCH_KIND_POINTWISE;
    }
}

void launch_emit(struct launch_walk *w, struct launch *l)
{
    l->stream = w->stream;
    l->place = w->place;
    l->captured = w->captured;
    l->graph = w->captured && w->graph;
    w->graph = false;
    l->what = l->what ? l->what : "";
    w->fn(w->arg, l);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t pieces(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}

/* ---- products and attention ----------------------------------------------------------------- */

/* One kernel where an epilogue does the rest of it (kernels/cuda/gemm.c). */
void launch_gemm(struct launch_walk *w, const struct launch_product *p)
{
    double in = w->model.elem, out = p->c_elem, c = (double)p->m * (double)p->n;
    double k = (double)p->k, passes = 1 + (p->adds ? 1 : 0) + (p->gelu || p->gelu_of ? 1 : 0);
    int64_t a_row = p->lda * w->model.elem, b_row = p->ldb * w->model.elem;
    int64_t c_row = (p->ldc > 0 ? p->ldc : p->n) * p->c_elem;
    bool aux_fits = p->n % 8 == 0 || !(p->gelu || p->gelu_of);
    struct launch l = {
        .op = LAUNCH_GEMM,
        .what = p->what,
        .size = {p->m, p->n, p->k},
        .elem = w->model.elem,
        .c_elem = p->c_elem,
        .beside = (p->bias ? LAUNCH_BIAS : 0) | (p->gelu ? LAUNCH_GELU : 0) |
                  (p->gelu_of ? LAUNCH_GELU_OF : 0),
        .adds = p->adds,
        .even = a_row % 16 == 0 && b_row % 16 == 0 && c_row % 16 == 0,
        .num_kernels = aux_fits ? 1 : 2,
        .flops = 2 * c * k,
        .bytes =
            in * k * (double)(p->m + p->n) + out * c * passes + (p->bias ? in * (double)p->n : 0),
    };
    if (!aux_fits) {
        l.bytes += 2 * out * c; /* C once more, by a launch of its own */
    }
    launch_emit(w, &l);
}

/* Backward: the row sums of dO x O, dq, and dk with dv; what both of the last two need they read
 * both (docs/performance.md). */
void launch_attention(struct launch_walk *w, bool backward)
{
    const struct launch_model *m = &w->model;
    double tokens = (double)m->r, h = (double)m->h, kv = (double)m->kv, e = (double)m->e;
    double stats = 4 * tokens * h, product = 2 * tokens * h * e * m->attended;
    struct launch l = {
        .op = backward ? LAUNCH_ATTENTION_BWD : LAUNCH_ATTENTION_FWD,
        .size = {m->b, m->t, m->h, m->kv, m->e},
        .elem = m->elem,
        .num_kernels = (backward ? 3 : 1) + (m->packed ? 1 : 0),
        .flops = (backward ? 4 : 2) * product,
        .bytes = backward ? m->elem * tokens * e * (6 * h + 6 * kv) + 5 * stats
                          : m->elem * tokens * e * (2 * h + 2 * kv) + stats,
    };
    launch_emit(w, &l);
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* Backward: sorting launches, one that sums, one that adds up pieces. */
void launch_embed(struct launch_walk *w, const char *what, int64_t r, int64_t v, bool backward)
{
    int64_t d = w->model.d;
    double numbers = (double)r * (double)d;
    struct launch l = {
        .op = backward ? LAUNCH_EMBED_BWD : LAUNCH_EMBED_FWD,
        .what = what,
        .size = {r, d, v},
        .elem = w->model.elem,
        .num_kernels = 1,
        .bytes = 2 * w->model.elem * numbers + 4 * (double)r,
    };
    if (backward) {
        int32_t sorts = 1;
        for (int64_t run = EMBED_TILE; run < r; run *= EMBED_MERGE_WAYS) {
            sorts++;
        }
        l.num_kernels = sorts + 1 + (r > EMBED_PIECE ? 1 : 0);
        l.bytes = 16.0 * (double)r * sorts + w->model.elem * numbers +
                  8.0 * (double)least(r, v) * (double)d;
    }
    launch_emit(w, &l);
}

void launch_norm(struct launch_walk *w, const char *what, int64_t r, int64_t d, bool layer_norm)
{
    struct launch l = {
        .op = layer_norm ? LAUNCH_LAYERNORM_FWD : LAUNCH_RMSNORM_FWD,
        .what = what,
        .size = {r, d},
        .elem = w->model.elem,
        .num_kernels = 1,
        .bytes = 2.0 * w->model.elem * (double)r * (double)d + (layer_norm ? 8 : 4) * (double)r,
    };
    launch_emit(w, &l);
}

void launch_norm_backward(struct launch_walk *w, const char *what, int64_t r, int64_t d,
                          bool layer_norm, bool adds)
{
    double parts = (double)least(r, NORM_PARTS) * (double)d;
    struct launch l = {
        .op = layer_norm ? LAUNCH_LAYERNORM_BWD : LAUNCH_RMSNORM_BWD,
        .what = what,
        .size = {r, d},
        .elem = w->model.elem,
        .adds = adds,
        .num_kernels = 2,
        .bytes = (adds ? 4.0 : 3.0) * w->model.elem * (double)r * (double)d +
                 (layer_norm ? 24 : 12) * parts,
    };
    launch_emit(w, &l);
}

void launch_rope(struct launch_walk *w, const char *what, int64_t heads)
{
    const struct launch_model *m = &w->model;
    double r = (double)m->r, e = (double)m->e;
    struct launch l = {
        .op = LAUNCH_ROPE,
        .what = what,
        .size = {m->r, heads, m->e},
        .elem = m->elem,
        .num_kernels = 1,
        .bytes = 2 * m->elem * r * (double)heads * e + 4 * r * e,
    };
    launch_emit(w, &l);
}

void launch_columns(struct launch_walk *w, enum launch_op op, const char *what, int64_t r,
                    int64_t n)
{
    int64_t per_block = 32 * (16 / w->model.elem), across = pieces(n, per_block);
    int64_t parts = least(COLUMN_BLOCKS / across, r / COLUMN_MIN_ROWS);
    bool sums = op == LAUNCH_COLUMN_SUM;
    struct launch l = {
        .op = op,
        .what = what,
        .size = {r, n},
        .elem = w->model.elem,
        .num_kernels = sums && parts > 1 ? 2 : 1,
        .bytes = (sums ? 1.0 : 2.0) * w->model.elem * (double)r * (double)n +
                 (sums ? 8.0 : w->model.elem) * (double)n,
    };
    if (sums && parts > 1) {
        l.bytes += 8.0 * (double)parts * (double)n;
    }
    launch_emit(w, &l);
}

/* Rows of logits: the whole vocabulary's read and written once from memory; of a cut one by its
 * three launches. */
void launch_loss(struct launch_walk *w, enum launch_op op, int64_t columns)
{
    double numbers = (double)w->model.r * (double)columns;
    double passes = op == LAUNCH_CE_MAX || op == LAUNCH_CE_SUM ? 1 : 2;
    struct launch l = {
        .op = op,
        .size = {w->model.r, columns},
        .elem = w->model.elem,
        .num_kernels = 1,
        .bytes = passes * w->model.elem * numbers + 12 * (double)w->model.r,
    };
    launch_emit(w, &l);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static double bytes_a_number(enum launch_op op, int32_t elem)
{
    switch (op) {
    case LAUNCH_SWIGLU_FWD:
    case LAUNCH_ADD:
        return 3.0 * elem;
    case LAUNCH_SWIGLU_BWD:
        return 5.0 * elem;
    case LAUNCH_SCALE:
        return 2.0 * elem;
    default:
        return elem;
    }
}

void launch_each_number(struct launch_walk *w, enum launch_op op, const char *what, int64_t n,
                        int32_t elem)
{
    struct launch l = {
        .op = op,
        .what = what,
        .size = {n},
        .elem = elem,
        .num_kernels = 1,
        .bytes = bytes_a_number(op, elem) * (double)n,
    };
    launch_emit(w, &l);
}

void launch_bytes(struct launch_walk *w, enum launch_op op, const char *what, int64_t bytes)
{
    struct launch l = {
        .op = op,
        .what = what,
        .size = {bytes},
        .elem = 1,
        .num_kernels = 1,
        .bytes = (op == LAUNCH_COPY ? 2.0 : 1.0) * (double)bytes,
    };
    launch_emit(w, &l);
}

/* ---- ranks and streams ---------------------------------------------------------------------- */

/* Bytes: what a rank sends, as plan/cost.h counts it. */
void launch_comm(struct launch_walk *w, enum launch_op op, const char *what, int64_t numel,
                 int32_t elem, int64_t ranks, Axis axis)
{
    double share = (double)(ranks - 1) / (double)ranks;
    struct launch l = {
        .op = op,
        .what = what,
        .size = {numel, ranks},
        .elem = elem,
        .num_kernels = 1,
        .bytes = (op == LAUNCH_ALL_REDUCE ? 2 : 1) * share * (double)numel * elem,
        .axis = axis,
    };
    launch_emit(w, &l);
}

void launch_mark(struct launch_walk *w, enum launch_op op, enum launch_stream stream, int64_t mark)
{
    struct launch l = {.op = op, .size = {mark}};
    enum launch_stream was = w->stream;
    w->stream = stream;
    launch_emit(w, &l);
    w->stream = was;
}
