/* The metrics of a run as rows: fetched page by page, written in each format. */
#ifndef TANDEM_CLIENTS_CLI_CURVE_H
#define TANDEM_CLIENTS_CLI_CURVE_H

#include "base/buf.h"
#include "clients/cli/cli.h"

enum { CURVE_SERIES_MAX = 16 };

struct curve {
    const char *series[CURVE_SERIES_MAX]; /* borrowed; in the order asked for */
    size_t num_series;
    int64_t *steps;    /* owned */
    int32_t *attempts; /* owned */
    double *values;    /* owned; row by row; NaN = none */
    size_t num_rows, cap_rows;
};

/* The names of all series, ended by NULL. */
extern const char *const curve_all_series[];
/* "loss,mfu" into c->series; what points into text is cut up. Unknown name: an error with the
 * nearest one. NULL: all. */
int curve_choose(struct curve *c, char *text, struct error *err);
/* Adds the rows of one reply. Columns that are missing give NaN. */
void curve_add(struct curve *c, const Metrics *m);
void curve_add_step(struct curve *c, const StepMetrics *m);
/* The other way: needs all series, in their own order. */
void curve_get_step(const struct curve *c, size_t row, StepMetrics *out);
void curve_free(struct curve *c);
/* One row: csv line, JSON object, YAML flow mapping. %.17g; what isn't there is empty or null. */
void curve_csv_head(const struct curve *c, struct buf *out);
void curve_row(const struct curve *c, size_t row, enum cli_format format, struct buf *out);
double curve_value(const struct curve *c, size_t row, size_t series);

#endif
