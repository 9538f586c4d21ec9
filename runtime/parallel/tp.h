/* Tensor parallel, as the layers see it: rows of the residual stream that are whole on every rank,
 * or with sequence parallel cut over the ranks; and sums of what each rank has a part of. With one
 * rank all of it is nothing. On the compute stream: what follows needs the result.
 *
 * R rows of a micro-batch are cut into ceil(R / T) for each rank, in order; the last ones' may be
 * fewer or none. Buffers have room for the padded rows (T x ceil(R / T)), which stay zero.
 * Source: Shoeybi et al. 2019; Korthikanti et al. 2022, section 4.2. */
#ifndef TANDEM_RUNTIME_PARALLEL_TP_H
#define TANDEM_RUNTIME_PARALLEL_TP_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/comm/comm.h"

struct tp {
    struct comm *comm; /* borrowed; NULL with one rank */
    struct stream *stream;
    enum dtype dtype;
    int32_t size, rank;
    bool sequence; /* rows of the residual stream are cut */
};

/* Rows that a buffer of this rank's rows, and one of all rows, must have room for. */
int64_t tp_own_room(const struct tp *tp, int64_t rows);
int64_t tp_all_room(const struct tp *tp, int64_t rows);
/* This rank's rows: how many, and which is the first. Without sequence parallel: all. */
int64_t tp_own_rows(const struct tp *tp, int64_t rows);
int64_t tp_first_row(const struct tp *tp, int64_t rows);

/* all [rows,width] = the ranks' own rows. Without sequence parallel nothing is to be done, and all
 * is own: callers give layers one place for both. */
int tp_gather(const struct tp *tp, void *all, const void *own, int64_t rows, int64_t width,
              struct error *err);
/* own = this rank's rows of the sum of the ranks' parts [rows,width]. Without sequence parallel own
 * is part, and gets all rows. part is destroyed. */
int tp_sum(const struct tp *tp, void *own, void *part, int64_t rows, int64_t width,
           struct error *err);
/* x [n] over the ranks, in place: for the loss. */
int tp_reduce_words(const struct tp *tp, double *x, int64_t n, enum comm_op op, struct error *err);

#endif
