/* A matrix without bias, in the three products that training needs. */
#include "runtime/layers/layers.h"

int linear_forward(struct model *m, void *y, const void *x, const struct weight *w,
                   struct error *err)
{
    struct gemm_args args = {
        .trans_b = true,
        .m = m->rows,
        .n = w->rows,
        .k = w->cols,
        .alpha = 1.0,
        .a = x,
        .lda = w->cols,
        .b = w->w,
        .ldb = w->cols,
        .c = y,
        .ldc = w->rows,
    };
    return m->kernels->gemm(m->dev, m->stream, m->dtype, &args, err);
}

int linear_backward_input(struct model *m, void *dx, const void *dy, const struct weight *w,
                          bool accumulate, struct error *err)
{
    struct gemm_args args = {
        .m = m->rows,
        .n = w->cols,
        .k = w->rows,
        .alpha = 1.0,
        .beta = accumulate ? 1.0 : 0.0,
        .a = dy,
        .lda = w->rows,
        .b = w->w,
        .ldb = w->cols,
        .c = dx,
        .ldc = w->cols,
    };
    return m->kernels->gemm(m->dev, m->stream, m->dtype, &args, err);
}

int linear_backward_weight(struct model *m, const struct weight *w, const void *dy, const void *x,
                           struct error *err)
{
    struct gemm_args args = {
        .trans_a = true,
        .m = w->rows,
        .n = w->cols,
        .k = m->rows,
        .alpha = 1.0,
        .beta = 1.0,
        .a = dy,
        .lda = w->rows,
        .b = x,
        .ldb = w->cols,
        .c = w->g,
        .ldc = w->cols,
    };
    return m->kernels->gemm(m->dev, m->stream, m->dtype, &args, err);
}
