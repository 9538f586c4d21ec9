/* A step's metrics as the store works with them, the steps that are kept together, and the extremes
 * of many steps. */
#ifndef TANDEM_SERVER_STORE_METRIC_ROW_H
#define TANDEM_SERVER_STORE_METRIC_ROW_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the order of the table's columns and of a curve's. */
#define METRIC_SERIES 7
#define METRIC_TOKENS 3

struct metric_row {
    int64_t step;
    int64_t tokens;
    double values[METRIC_SERIES]; /* NaN = none; [METRIC_TOKENS] is tokens */
    int32_t attempt;
};

/* Chunk c of an attempt holds its steps c * 1024 + 1 to (c + 1) * 1024. */
#define METRIC_CHUNK_STEPS 1024
/* What a chunk's own rollup keeps the extremes of. */
#define METRIC_BLOCK_STEPS 128
#define METRIC_CHUNK_BLOCKS (METRIC_CHUNK_STEPS / METRIC_BLOCK_STEPS)

/* The rows with the smallest and the largest value of each series, and the ends. NaN is larger than
 * any number, so a curve that breaks shows where; of equals the earliest row counts. */
struct metric_extremes {
    struct metric_row min[METRIC_SERIES], max[METRIC_SERIES], first, last;
    bool any; /* false: no row yet */
};

static inline int64_t metric_chunk_of(int64_t step)
{
    return (step - 1) / METRIC_CHUNK_STEPS;
}

/* The order of a curve. */
static inline bool metric_before(const struct metric_row *a, const struct metric_row *b)
{
    return a->step != b->step ? a->step < b->step : a->attempt < b->attempt;
}

/* Is a the better minimum, or maximum, of a series? An order of all rows, so that extremes of
 * extremes are the same in whatever order they are put together. */
bool metric_is_lower(const struct metric_row *a, const struct metric_row *b, int series);
bool metric_is_higher(const struct metric_row *a, const struct metric_row *b, int series);

void metric_extremes_add(struct metric_extremes *e, const struct metric_row *r);
void metric_extremes_merge(struct metric_extremes *e, const struct metric_extremes *more);

#endif
