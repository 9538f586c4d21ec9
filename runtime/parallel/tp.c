#include "runtime/parallel/tp.h"

static bool is_cut(const struct tp *tp)
{
    return tp->size > 1 && tp->sequence;
}

int64_t tp_own_room(const struct tp *tp, int64_t rows)
{
    return is_cut(tp) ? (rows + tp->size - 1) / tp->size : rows;
}

int64_t tp_all_room(const struct tp *tp, int64_t rows)
{
    return is_cut(tp) ? tp_own_room(tp, rows) * tp->size : rows;
}

int64_t tp_first_row(const struct tp *tp, int64_t rows)
{
    int64_t first = is_cut(tp) ? tp_own_room(tp, rows) * tp->rank : 0;
    return first < rows ? first : rows;
}

int64_t tp_own_rows(const struct tp *tp, int64_t rows)
{
    int64_t left = rows - tp_first_row(tp, rows), room = tp_own_room(tp, rows);
    return left < room ? left : room;
}

int tp_gather(const struct tp *tp, void *all, const void *own, int64_t rows, int64_t width,
              struct error *err)
{
    if (!is_cut(tp)) {
        ASSERT(all == own);
        return 0;
    }
    return tp->comm->ops->all_gather(tp->comm, tp->stream, all, own, tp_own_room(tp, rows) * width,
                                     tp->dtype, err);
}

int tp_sum(const struct tp *tp, void *own, void *part, int64_t rows, int64_t width,
           struct error *err)
{
    if (is_cut(tp))
        return tp->comm->ops->reduce_scatter(tp->comm, tp->stream, own, part,
                                             tp_own_room(tp, rows) * width, tp->dtype, err);
    ASSERT(own == part);
    if (tp->size == 1)
        return 0;
    return tp->comm->ops->all_reduce(tp->comm, tp->stream, part, rows * width, tp->dtype, COMM_SUM,
                                     err);
}

int tp_reduce_words(const struct tp *tp, double *x, int64_t n, enum comm_op op, struct error *err)
{
    if (tp->size == 1)
        return 0;
    return tp->comm->ops->all_reduce(tp->comm, tp->stream, x, n, DTYPE_F64, op, err);
}
