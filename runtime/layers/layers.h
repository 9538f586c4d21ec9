/* What the files of layers/ share: a model's weights, its activations, and one function a piece of
 * the forward and backward pass. Private to this folder.
 *
 * Backward comes in two halves: *_backward_input carries the gradient to the layer's input (and
 * adds the norm weights' gradients, which fall out of it), *_backward_weight adds the gradients of
 * the matrices. The second needs only what the first left in place, so that a schedule may run it
 * later.
 *
 * Letters: R rows = B sequences x T positions, r of them this tensor rank's own (all, without
 * sequence parallel), D hidden, H query heads, K key/value heads, E width of a head, F ffn width, V
 * vocabulary; of H, K, F and V what lies on this tensor rank. */
#ifndef TANDEM_RUNTIME_LAYERS_LAYERS_H
#define TANDEM_RUNTIME_LAYERS_LAYERS_H

#include "runtime/layers/model.h"

/* A parameter or a part of one, as a place in its bucket. Matrices are rows = outputs, cols =
 * inputs, however they are stored; vectors have one row; rows 0: the family has none. */
struct weight {
    int64_t offset; /* elements from the bucket's start */
    int64_t rows, cols;
    int64_t distance; /* elements from one stored row to the next */
    int64_t apart;    /* elements from one row of its outputs to the next; 0 = side by side */
    int32_t bucket;
    bool in_out; /* stored [inputs, outputs] */
};

/* A matrix and its bias, or a norm's scale and shift. */
struct layer {
    struct weight w, b;
};

struct block_weights {
    struct layer attn_norm, q, k, v, o;
    struct layer q_norm, k_norm;
    struct layer mlp_norm, gate, up, down; /* without a gate: GELU */
};

struct model_weights {
    struct weight embed, positions;
    struct block_weights *blocks; /* owned, [L] */
    struct layer final_norm;
    struct weight head; /* tied: the same place as embed */
};

/* Of each row; mean in a layer norm alone. */
struct norm_stats {
    void *mean, *rstd;
};

/* What one block keeps for its backward pass; its input is residual l, its output l + 1. In a
 * forward-only model blocks have q, k and v of their own and share the rest. */
struct block_acts {
    void *attn_normed; /* [r,D] */
    struct norm_stats attn_stats;
    void *q_raw, *k_raw; /* before their norms; [R,H,E], [R,K,E] */
    struct norm_stats q_stats, k_stats;
    void *q, *k, *v; /* [R,H,E], [R,K,E] x 2; q and k after RoPE */
    void *o, *lse;   /* [R,H,E], [B,H,T] */
    void *mid;       /* [r,D]: the residual between attention and MLP */
    void *mlp_normed;
    struct norm_stats mlp_stats;
    void *gate, *up; /* [R,F]; with a gate their gradients after backward_input */
    void *act;       /* [R,F] = silu(gate) * up, or gelu(up) */
};

struct model {
    /* Sizes. */
    int64_t batch, seq_len; /* B, T */
    int64_t rows, past;     /* R = B x T and 0, or the span that a forward-only model is at */
    int64_t hidden, heads, kv_heads, head_dim, ffn;
    int64_t vocab, vocab_first, vocab_valid; /* rows of the table, its first id, true ones */
    int64_t logits_ld;     /* from one row of logits to the next: V, or where it trains some more */
    int64_t num_positions; /* learned ones; 0 = RoPE */
    int32_t num_layers;
    double eps;
    bool trains, layer_norm, qk_norm, gated;
    enum dtype dtype, wide; /* of activations and weights; of gradients and statistics */
    struct tp tp;
    /* Where it runs; borrowed. */
    struct device *dev;
    const struct kernels *kernels;
    struct stream *stream;
    /* What it is. */
    struct model_weights weights;
    const struct param_table *table;
    char **weights_at, **grads_at; /* owned lists: where each bucket lies */
    int32_t num_buckets;
    void *rope_cos, *rope_sin; /* [T, E/2] */
    /* What it computes, in memory of the arenas. */
    struct arenas *arenas;
    bool owns_arenas;
    void **residuals;        /* owned list; see acts_residual */
    struct block_acts *acts; /* owned list, [L] */
    void *final_normed;      /* [r,D] */
    struct norm_stats final_stats;
    void *logits;          /* [R,logits_ld]; the gradient after a forward pass with targets */
    double *nll, *nll_sum; /* [R], [1] */
    void *part;            /* [R,D], T > 1: this rank's part of what is summed next */
    double *ce_words;      /* [3R], T > 1: maxima, then sums */
    void *gathered;        /* [R,D], sequence parallel: a layer's input, whole */
    /* Backward only; NULL otherwise. The gradient of the residual stream, where it stands now, and
     * the buffer it moves to next. */
    void *d_residual, *d_residual_next; /* [r,D] */
    void *d_gathered;                   /* [R,D], sequence parallel: a layer's d output, whole */
    void *d_normed;                     /* [r,D]: the sum of the ranks' d_normed_part */
    void *d_normed_part;                /* [R,D]; one rank: d_normed itself */
    void *d_o, *d_q, *d_k, *d_v;        /* [R,H,E] x 2, [R,K,E] x 2 */
    void *d_act;                        /* [R,F]; shares memory with d_o .. d_v. GELU: d up */
    void *workspace;
    int32_t *positions; /* [R], r % T; where someone needs them */
    struct batch input; /* the micro-batch; borrowed */
    int32_t unit;       /* where the walk is, for the text of a failed sum */
    bool backward;
    bool is_first; /* see model_backward */
};

/* weights.c: finds each parameter of the model in the table, by its role. */
int weights_find(struct model *m, const ModelConfig *config, struct error *err);
void weights_free(struct model *m);
static inline bool weight_exists(const struct weight *w)
{
    return w->rows > 0;
}
/* Where it, or its gradient, lies just now. */
void *weight_at(const struct model *m, const struct weight *w);
void *weight_grad(const struct model *m, const struct weight *w);

/* acts.c: lays all activations out, each kind in one piece of memory, and takes it. */
int acts_alloc(struct model *m, struct error *err);
void acts_free(struct model *m);
/* The residual stream behind block l - 1. A forward-only model has two buffers by turns. */
void *acts_residual(const struct model *m, int32_t l);
/* The rows of this pass in x [T,width], which holds all positions. */
void *acts_from_past(const struct model *m, void *x, int64_t width);

/* rope.c: fails on a kind of scaling that it doesn't know. */
int rope_check(const ModelConfig *config, struct error *err);
/* Angle per position of frequency i < head_dim / 2. */
double rope_frequency(const ModelConfig *config, int64_t head_dim, int64_t i);
/* Fills m->rope_cos, m->rope_sin. */
int rope_fill(struct model *m, const ModelConfig *config, struct error *err);

/* positions.c: fills m->positions where it exists. */
int positions_fill(struct model *m, struct error *err);
/* Of this pass's rows; NULL = r % T. */
const int32_t *positions_of_rows(const struct model *m);

/* linear.c: y [R,out] = x [R,in] w^T + bias, which may not exist. */
int linear_forward(struct model *m, void *y, const void *x, const struct layer *l,
                   struct error *err);
/* The same without the bias; with act = gelu(y) besides; added to residual [R,out], not y's place.
 */
int linear_forward_part(struct model *m, void *y, const void *x, const struct layer *l,
                        struct error *err);
int linear_forward_gelu(struct model *m, void *act, void *y, const void *x, const struct layer *l,
                        struct error *err);
int linear_forward_onto(struct model *m, void *y, const void *residual, const void *x,
                        const struct layer *l, struct error *err);
/* dx = or += dy w; dx = (dy w) * gelu'(before), whose place is another. */
int linear_backward_input(struct model *m, void *dx, const void *dy, const struct layer *l,
                          bool accumulate, struct error *err);
int linear_backward_gelu(struct model *m, void *dx, const void *dy, const struct layer *l,
                         const void *before, struct error *err);
/* dw = or, behind the first pass, += dy^T x, once in a pass; and db += the sum of dy's rows, where
 * the layer has a bias. */
int linear_backward_weight(struct model *m, const struct weight *w, const void *dy, const void *x,
                           struct error *err);
int linear_backward_layer(struct model *m, const struct layer *l, const void *dy, const void *x,
                          struct error *err);

/* norm.c: RMS or layer norm of this rank's rows x [r,D]; dw +=, and dx = or +=. */
int norm_forward(struct model *m, void *y, const struct norm_stats *stats, const void *x,
                 const struct layer *l, struct error *err);
int norm_backward(struct model *m, void *dx, const void *dy, const void *x,
                  const struct norm_stats *stats, const struct layer *l, bool accumulate,
                  struct error *err);

/* stream.c: the residual stream, which with sequence parallel is cut over the tensor ranks. */

/* Rows of it that are this rank's. */
int64_t stream_own_rows(const struct model *m);
/* *all [R,D] = the rows of all ranks: own itself where it has them, else gathered into room. */
int stream_gather(struct model *m, const void **all, void *room, const void *own,
                  struct error *err);
/* Where a product goes of which every tensor rank has a part, and whose sum is to become out. */
void *stream_part(const struct model *m, void *out);
/* *sum = this rank's rows of that sum; out itself, or a place that the next part takes. */
int stream_sum(struct model *m, void *out, void **sum, struct error *err);
/* out [r,D] = x + the sum of the ranks' parts of in [R,..] w^T, and the bias where there is one. */
int stream_project(struct model *m, void *out, const void *x, const void *in, const struct layer *l,
                   struct error *err);
/* db += the sum of this rank's rows of dy [r,D]; nothing for a bias that doesn't exist. */
int stream_backward_bias(struct model *m, const struct weight *bias, const void *dy,
                         struct error *err);
/* m->d_normed = this rank's rows of the sum of m->d_normed_part. */
int stream_sum_gradient(struct model *m, struct error *err);
/* Says what the next call of the tensor ranks is about. */
void stream_say(const struct model *m);

/* embed.c: residual 0 = rows of the embedding, plus those of learned positions. */
int embed_forward(struct model *m, struct error *err);
int embed_backward(struct model *m, const void *dy, struct error *err);

/* heads.c: what happens to q and k between their matrices and attention: norm of each head, then
 * RoPE; a family may have either, both or none. */
int heads_forward(struct model *m, int32_t l, struct error *err);
/* In place on m->d_q, m->d_k. */
int heads_backward(struct model *m, int32_t l, struct error *err);
/* Where the matrices put q and k. */
void *heads_q_in(const struct model *m, const struct block_acts *a);
void *heads_k_in(const struct model *m, const struct block_acts *a);

/* attention.c: mid = x + attention(norm(x)). d_in = gradient of x, d_mid = that of mid. */
int attention_forward(struct model *m, int32_t l, struct error *err);
int attention_backward_input(struct model *m, int32_t l, void *d_in, const void *d_mid,
                             struct error *err);
int attention_backward_weight(struct model *m, int32_t l, const void *d_mid, struct error *err);

/* mlp.c: out = mid + down(silu(gate(norm(mid))) * up(norm(mid))), or down(gelu(up(norm(mid)))). */
int mlp_forward(struct model *m, int32_t l, struct error *err);
int mlp_backward_input(struct model *m, int32_t l, void *d_mid, const void *d_out,
                       struct error *err);
int mlp_backward_weight(struct model *m, int32_t l, const void *d_out, struct error *err);

/* head.c: final norm, logits. loss.c: their cross entropy. See model_forward. */
int head_forward(struct model *m, double dloss, double *loss_sum, struct error *err);
int head_backward_input(struct model *m, void *d_in, struct error *err);
int head_backward_weight(struct model *m, struct error *err);
int loss_forward(struct model *m, double dloss, double *loss_sum, struct error *err);

#endif
