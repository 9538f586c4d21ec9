/* The walk behind plan/launches.h. Private to plan/launches*. */
#ifndef TANDEM_PLAN_LAUNCHES_PARTS_H
#define TANDEM_PLAN_LAUNCHES_PARTS_H

#include "plan/launches.h"
#include "plan/params.h"

#define LAUNCH_MARK_COMPUTED 0
#define LAUNCH_MARK_REDUCED 1
#define LAUNCH_MARK_UPDATED 2
#define LAUNCH_MARK_WEIGHT_SLOT 3 /* and two more */
#define LAUNCH_MARK_GRAD_SLOT 6   /* and two more */
#define LAUNCH_MARK_GATHERED 9    /* and one for each bucket */

/* The sizes of a rank's model, as runtime/layers/model.c sets them. */
struct launch_model {
    int64_t b, t, r, own; /* own: rows of the residual stream that are this tensor rank's */
    int64_t d, h, kv, e, f, v, valid;
    int32_t num_layers;
    int64_t tensor;
    bool sequence, layer_norm, qk_norm, positions, gated, packed;
    bool q_bias, o_bias, up_bias, down_bias; /* q's stands for k and v, too */
    bool in_out;                             /* matrices of blocks are stored [inputs, outputs] */
    double attended;                         /* positions that a token attends to, the mean */
    int32_t elem, wide;
};

struct launch_walk {
    launch_fn fn;
    void *arg;
    const Plan *plan;
    struct launch_model model;
    enum launch_place place;
    enum launch_stream stream;
    bool captured, graph; /* graph: the next launch is the first of one */
    bool is_first;        /* backward: nothing is there yet that products are added to */
};

/* ---- launches_ops.c: one launch each ---- */

void launch_emit(struct launch_walk *w, struct launch *l);
/* What goes with a product beside it. */
struct launch_product {
    const char *what;
    int64_t m, n, k;
    int64_t lda, ldb;
    int64_t ldc; /* 0: n */
    int32_t c_elem;
    bool adds, bias, gelu, gelu_of;
};
void launch_gemm(struct launch_walk *w, const struct launch_product *p);
void launch_embed(struct launch_walk *w, const char *what, int64_t r, int64_t v, bool backward);
void launch_norm(struct launch_walk *w, const char *what, int64_t r, int64_t d, bool layer_norm);
void launch_norm_backward(struct launch_walk *w, const char *what, int64_t r, int64_t d,
                          bool layer_norm, bool adds);
void launch_rope(struct launch_walk *w, const char *what, int64_t heads);
void launch_attention(struct launch_walk *w, bool backward);
void launch_each_number(struct launch_walk *w, enum launch_op op, const char *what, int64_t n,
                        int32_t elem);
void launch_columns(struct launch_walk *w, enum launch_op op, const char *what, int64_t r,
                    int64_t n);
void launch_loss(struct launch_walk *w, enum launch_op op, int64_t columns);
void launch_bytes(struct launch_walk *w, enum launch_op op, const char *what, int64_t bytes);
void launch_comm(struct launch_walk *w, enum launch_op op, const char *what, int64_t numel,
                 int32_t elem, int64_t ranks, Axis axis);
void launch_mark(struct launch_walk *w, enum launch_op op, enum launch_stream stream, int64_t mark);

/* ---- launches_model.c: as runtime/layers does it ---- */

void launch_model_init(struct launch_model *m, const Plan *plan, const struct param_table *table);
void launch_forward(struct launch_walk *w, int32_t unit_begin, int32_t unit_end);
void launch_backward(struct launch_walk *w, int32_t unit_begin, int32_t unit_end);

#endif
