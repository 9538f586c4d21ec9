/* What the files of layers/ share: a model's weights, its activations, and one function a piece of
 * the forward and backward pass. Private to this folder.
 *
 * Backward comes in two halves: *_backward_input carries the gradient to the layer's input (and
 * adds the norm weights' gradients, which fall out of it), *_backward_weight adds the gradients of
 * the matrices. The second needs only what the first left in place, so that a schedule may run it
 * later.
 *
 * Letters: R rows = B sequences x T positions, D hidden, H query heads, K key/value heads, E width
 * of a head, F ffn width, V vocabulary. */
#ifndef TANDEM_RUNTIME_LAYERS_LAYERS_H
#define TANDEM_RUNTIME_LAYERS_LAYERS_H

#include "runtime/layers/model.h"

/* A parameter and its gradient, both inside the flat buffers. Matrices are [rows, cols] =
 * [outputs, inputs]; vectors have one row. g is NULL in a forward-only model. */
struct weight {
    void *w;
    void *g;
    int64_t rows, cols;
};

struct block_weights {
    struct weight attn_norm, q, k, v, o;
    struct weight mlp_norm, gate, up, down;
};

struct model_weights {
    struct weight embed;
    struct block_weights *blocks; /* owned, [L] */
    struct weight final_norm;
    struct weight head; /* tied: the same places as embed */
};

/* What one block keeps for its backward pass; its input is residual l, its output l + 1. In a
 * forward-only model blocks have q, k and v of their own and share the rest. */
struct block_acts {
    void *attn_normed, *attn_rstd; /* [R,D], [R] */
    void *q, *k, *v;               /* [R,H,E], [R,K,E] x 2; q and k after RoPE */
    void *o, *lse;                 /* [R,H,E], [B,H,T] */
    void *mid;                     /* [R,D]: the residual between attention and MLP */
    void *mlp_normed, *mlp_rstd;   /* [R,D], [R] */
    void *gate, *up;               /* [R,F]; their gradients after backward_input */
    void *act;                     /* [R,F] = silu(gate) * up */
};

struct model {
    /* Sizes. */
    int64_t batch, seq_len; /* B, T */
    int64_t rows, past;     /* R = B x T and 0, or the span that a forward-only model is at */
    int64_t hidden, heads, kv_heads, head_dim, ffn, vocab;
    int32_t num_layers;
    double eps;
    enum dtype dtype;
    /* Where it runs; borrowed. */
    struct device *dev;
    const struct kernels *kernels;
    struct stream *stream;
    /* What it is. */
    struct model_weights weights;
    void *rope_cos, *rope_sin; /* [T, E/2] */
    /* What it computes. All of it lies in `memory`. */
    void *memory;                    /* owned; device */
    void **residuals;                /* owned list; see model_residual */
    struct block_acts *acts;         /* owned list, [L] */
    void *final_normed, *final_rstd; /* [R,D], [R] */
    void *logits;                    /* [R,V]; the gradient after a forward pass with targets */
    double *nll, *nll_sum;           /* [R], [1] */
    /* Backward only; NULL otherwise. The gradient of the residual stream, where it stands now, and
     * the buffer it moves to next. */
    void *d_residual, *d_residual_next; /* [R,D] */
    void *d_normed;                     /* [R,D] */
    void *d_o, *d_q, *d_k, *d_v;        /* [R,H,E] x 2, [R,K,E] x 2 */
    void *d_act;                        /* [R,F]; shares memory with d_o .. d_v */
    void *workspace;
    int32_t *positions; /* [T] = 0 .. T-1; forward only */
    /* The micro-batch; borrowed. */
    const int32_t *ids, *targets;
};

/* weights.c: finds each parameter of the model in the table. */
int weights_bind(struct model_weights *out, const struct model_options *options, struct error *err);
void weights_free(struct model_weights *weights);

/* acts.c: lays all activations out in one piece of memory and allocates it. */
int acts_alloc(struct model *m, struct error *err);
void acts_free(struct model *m);
/* False: forward only. */
static inline bool acts_keep_all(const struct model *m)
{
    return m->weights.embed.g != NULL;
}
/* Input of block l (l = L: input of the final norm), [R,D]. */
void *acts_residual(const struct model *m, int32_t l);
/* Where a pass puts its rows into a tensor that holds all positions: behind those of the past. */
void *acts_from_past(const struct model *m, void *x, int64_t width);

/* rope.c: cos and sin of position x frequency, as Hugging Face computes them. */
int rope_check(const ModelConfig *config, struct error *err);
/* Angle per position of frequency i < head_dim / 2. */
double rope_frequency(const ModelConfig *config, int64_t head_dim, int64_t i);
/* Fills m->rope_cos, m->rope_sin, m->positions. */
int rope_fill(struct model *m, const ModelConfig *config, struct error *err);

/* linear.c: y [R,out] = x [R,in] w^T; dx = or += dy w; dw += dy^T x. */
int linear_forward(struct model *m, void *y, const void *x, const struct weight *w,
                   struct error *err);
int linear_backward_input(struct model *m, void *dx, const void *dy, const struct weight *w,
                          bool accumulate, struct error *err);
int linear_backward_weight(struct model *m, const struct weight *w, const void *dy, const void *x,
                           struct error *err);

/* norm.c: RMS norm of [R,D]; dw +=, and dx = or +=. */
int norm_forward(struct model *m, void *y, void *rstd, const void *x, const struct weight *w,
                 struct error *err);
int norm_backward(struct model *m, void *dx, const void *dy, const void *x, const void *rstd,
                  const struct weight *w, bool accumulate, struct error *err);

/* embed.c: residual 0 = rows of the embedding. */
int embed_forward(struct model *m, struct error *err);
int embed_backward(struct model *m, const void *dy, struct error *err);

/* attention.c: mid = x + attention(norm(x)). d_in = gradient of x, d_mid = that of mid. */
int attention_forward(struct model *m, int32_t l, struct error *err);
int attention_backward_input(struct model *m, int32_t l, void *d_in, const void *d_mid,
                             struct error *err);
int attention_backward_weight(struct model *m, int32_t l, const void *d_mid, struct error *err);

/* mlp.c: out = mid + down(silu(gate(norm(mid))) * up(norm(mid))). */
int mlp_forward(struct model *m, int32_t l, struct error *err);
int mlp_backward_input(struct model *m, int32_t l, void *d_mid, const void *d_out,
                       struct error *err);
int mlp_backward_weight(struct model *m, int32_t l, const void *d_out, struct error *err);

/* head.c: final norm, logits, loss. See model_forward. */
int head_forward(struct model *m, double dloss, double *loss_sum, struct error *err);
int head_backward_input(struct model *m, void *d_in, struct error *err);
int head_backward_weight(struct model *m, struct error *err);

#endif
