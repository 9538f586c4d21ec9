/* How far a run is, on one line: a bar for a terminal, plain words for a file. */
#ifndef TANDEM_CLIENTS_CLI_PROGRESS_H
#define TANDEM_CLIENTS_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

/* NaN: not known. */
struct progress {
    const char *name;
    const char *note; /* instead of figures: "QUEUED", "server away, trying again"; NULL = none */
    int64_t step, total_steps;
    double loss, grad_norm, tokens_per_s, mfu, eta_s;
};

/* Fits width columns: what doesn't fit is left out, the least important first. No newline. */
void progress_bar(struct buf *out, const struct progress *p, int width, bool utf8, bool colour);
/* "step 412/1000 loss 2.3145 grad_norm 0.8200 tokens/s 12.3k mfu 41.2% eta 3m12s" */
void progress_line(struct buf *out, const struct progress *p);

#endif
