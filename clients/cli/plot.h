/* A curve in characters: braille dots where the terminal writes UTF-8, stars elsewhere. */
#ifndef TANDEM_CLIENTS_CLI_PLOT_H
#define TANDEM_CLIENTS_CLI_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct plot {
    const char *title;
    const char *x_label;
    const double *x, *y; /* n points, x rising; a y that isn't finite leaves a gap */
    size_t n;
    int width, height; /* characters, axes and labels included */
    bool utf8;
    const char *colour; /* escape sequence of the curve; NULL = none */
};

/* One spike doesn't flatten the rest: what lies far beyond most points is cut off, and said. */
void plot_draw(struct buf *out, const struct plot *p);
/* n values as a row of at most width little bars (UTF-8); fewer than two values: nothing. */
void plot_spark(struct buf *out, const double *v, size_t n, int width);

#endif
