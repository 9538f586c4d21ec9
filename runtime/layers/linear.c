/* A matrix in the three products that training needs, stored either way round, and the bias that
 * goes with its outputs. */
#include "runtime/layers/layers.h"

int linear_forward(struct model *m, void *y, const void *x, const struct weight *w,
                   struct error *err)
{
    struct gemm_args args = {
        .trans_b = !w->in_out,
        .m = m->rows,
        .n = w->rows,
        .k = w->cols,
        .alpha = 1.0,
        .a = x,
        .lda = w->cols,
        .b = weight_at(m, w),
        .ldb = w->distance,
        .c = y,
        .ldc = w->rows,
        .c_type = m->dtype,
    };
    return m->kernels->gemm(m->dev, m->stream, m->dtype, &args, err);
}

int linear_backward_input(struct model *m, void *dx, const void *dy, const struct weight *w,
                          bool accumulate, struct error *err)
{
    struct gemm_args args = {
        .trans_b = w->in_out,
        .m = m->rows,
        .n = w->cols,
        .k = w->rows,
        .alpha = 1.0,
        .beta = accumulate ? 1.0 : 0.0,
        .a = dy,
        .lda = w->rows,
        .b = weight_at(m, w),
        .ldb = w->distance,
        .c = dx,
        .ldc = w->cols,
        .c_type = m->dtype,
    };
    return m->kernels->gemm(m->dev, m->stream, m->dtype, &args, err);
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
        .beta = 1.0,
        .a = w->in_out ? x : dy,
        .lda = w->in_out ? w->cols : w->rows,
        .b = w->in_out ? dy : x,
        .ldb = w->in_out ? w->rows : w->cols,
        .c = weight_grad(m, w),
        .ldc = w->distance,
        .c_type = m->dtype,
    };
    return m->kernels->gemm(m->dev, m->stream, m->dtype, &args, err);
}

int linear_forward_biased(struct model *m, void *y, const void *x, const struct layer *l,
                          struct error *err)
{
    if (linear_forward(m, y, x, &l->w, err) != 0)
        return -1;
    if (!weight_exists(&l->b))
        return 0;
    return m->kernels->add_bias(m->dev, m->stream, m->dtype, y, weight_at(m, &l->b), m->rows,
                                l->b.cols, err);
}

int linear_backward_biased(struct model *m, const struct layer *l, const void *dy, const void *x,
                           struct error *err)
{
    if (linear_backward_weight(m, &l->w, dy, x, err) != 0)
        return -1;
    if (!weight_exists(&l->b))
        return 0;
    return m->kernels->column_sum(m->dev, m->stream, m->dtype, weight_grad(m, &l->b), dy, m->rows,
                                  l->b.cols, err);
}
