/* A matrix in the three products that training needs, stored either way round, and what goes with
 * its outputs: bias, GELU, the residual that they are added to. All of a product is one call, so
 * that an accelerator may do it in one go. */
#include "runtime/layers/layers.h"

static int product(struct model *m, const struct gemm_args *args, struct error *err)
{
    return m->kernels->gemm(m->dev, m->stream, m->dtype, args, err);
}

/* From one row of a matrix's outputs, or of their gradients, to the next. */
static int64_t apart(const struct weight *w)
{
    return w->apart > 0 ? w->apart : w->rows;
}

static struct gemm_args forward_args(const struct model *m, void *y, const void *x,
                                     const struct layer *l)
{
    return (struct gemm_args){
        .trans_b = !l->w.in_out,
        .m = m->rows,
        .n = l->w.rows,
        .k = l->w.cols,
        .alpha = 1.0,
        .a = x,
        .lda = l->w.cols,
        .b = weight_at(m, &l->w),
        .ldb = l->w.distance,
        .c = y,
        .ldc = apart(&l->w),
        .c_type = m->dtype,
        .bias = weight_exists(&l->b) ? weight_at(m, &l->b) : NULL,
    };
}

int linear_forward(struct model *m, void *y, const void *x, const struct layer *l,
                   struct error *err)
{
    struct gemm_args args = forward_args(m, y, x, l);
    return product(m, &args, err);
}

int linear_forward_part(struct model *m, void *y, const void *x, const struct layer *l,
                        struct error *err)
{
    struct gemm_args args = forward_args(m, y, x, l);
    args.bias = NULL;
    return product(m, &args, err);
}

int linear_forward_gelu(struct model *m, void *act, void *y, const void *x, const struct layer *l,
                        struct error *err)
{
    struct gemm_args args = forward_args(m, y, x, l);
    args.gelu = act;
    return product(m, &args, err);
}

int linear_forward_onto(struct model *m, void *y, const void *residual, const void *x,
                        const struct layer *l, struct error *err)
{
    struct gemm_args args = forward_args(m, y, x, l);
    args.c0 = residual;
    args.beta = 1.0;
    return product(m, &args, err);
}

static struct gemm_args backward_args(const struct model *m, void *dx, const void *dy,
                                      const struct weight *w)
{
    return (struct gemm_args){
        .trans_b = w->in_out,
        .m = m->rows,
        .n = w->cols,
        .k = w->rows,
        .alpha = 1.0,
        .a = dy,
        .lda = apart(w),
        .b = weight_at(m, w),
        .ldb = w->distance,
        .c = dx,
        .ldc = w->cols,
        .c_type = m->dtype,
    };
}

int linear_backward_input(struct model *m, void *dx, const void *dy, const struct layer *l,
                          bool accumulate, struct error *err)
{
    struct gemm_args args = backward_args(m, dx, dy, &l->w);
    args.beta = accumulate ? 1.0 : 0.0;
    return product(m, &args, err);
}

int linear_backward_gelu(struct model *m, void *dx, const void *dy, const struct layer *l,
                         const void *before, struct error *err)
{
    struct gemm_args args = backward_args(m, dx, dy, &l->w);
    args.gelu_of = before;
    return product(m, &args, err);
}

int linear_backward_weight(struct model *m, const struct weight *w, const void *dy, const void *x,
                           struct error *err)
{
    /* As stored: [outputs, inputs] = dy^T x, [inputs, outputs] = x^T dy. */
    struct gemm_args args = {
        .trans_a = true,
        .m = w->in_out ? w->cols : w->rows,
        .n = w->in_out ? w->rows : w->cols,
        .k = m->rows,
        .alpha = 1.0,
        .beta = m->is_first ? 0.0 : 1.0,
        .a = w->in_out ? x : dy,
        .lda = w->in_out ? w->cols : apart(w),
        .b = w->in_out ? dy : x,
        .ldb = w->in_out ? apart(w) : w->cols,
        .c = weight_grad(m, w),
        .ldc = w->distance,
        .c_type = m->wide,
    };
    return product(m, &args, err);
}

int linear_backward_layer(struct model *m, const struct layer *l, const void *dy, const void *x,
                          struct error *err)
{
    if (linear_backward_weight(m, &l->w, dy, x, err) != 0)
        return -1;
    if (!weight_exists(&l->b))
        return 0;
    return m->kernels->column_sum(m->dev, m->stream, m->dtype, weight_grad(m, &l->b), dy, m->rows,
                                  l->b.cols, err);
}
