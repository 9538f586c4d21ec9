/* Columns of a curve out of its rows, thinned out so that the extremes of each span stay. */
#ifndef TANDEM_SERVER_CURVE_H
#define TANDEM_SERVER_CURVE_H

#include "server/store/store.h"

/* Rows that one reply may hold: nine columns of them stay below what a client takes. */
#define CURVE_ROWS_MAX 32768

int curve_read(struct store *s, const GetMetricsRequest *request, int64_t job, Metrics **out,
               struct error *err);

#endif
