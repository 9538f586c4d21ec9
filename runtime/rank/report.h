/* What a rank says: its phase, rank 0's metrics of each step, checkpoints, the end. Lines for
 * people go to the log. The checkpoint's report may come from the saver's thread, all else from the
 * rank's own. */
#ifndef TANDEM_RUNTIME_RANK_REPORT_H
#define TANDEM_RUNTIME_RANK_REPORT_H

#include <stdint.h>

#include "base/error.h"
#include "proto/names.h"
#include "runtime/link/link.h"

struct report;

/* start and link are borrowed. */
int report_new(struct report **out, const RankStart *start, struct link *link, struct error *err);
void report_free(struct report *r);

/* "load", "train", "save", "export". Sent at once when it changes, else a few times a second. */
int report_phase(struct report *r, int64_t step, const char *phase, struct error *err);

struct step_result {
    double loss;      /* mean over the step's valid targets */
    double grad_norm; /* before clipping */
    double lr;
    /* Of the whole step, over all ranks, where they were counted; else 0. attended: sum over the
     * tokens of how many positions each attends to. */
    double tokens, attended;
    int64_t duration_ns;
};
/* Every rank's own, as Progress. */
int report_memory(struct report *r, int64_t step, MemoryUse *use, struct error *err);
/* Rank 0 only; on others nothing happens. */
int report_step(struct report *r, int64_t step, const struct step_result *result,
                struct error *err);

/* dir: the checkpoint folder's name. */
int report_checkpoint(struct report *r, int64_t step, const char *dir, int64_t size_bytes,
                      double loss, struct error *err);
/* dir: below the job folder. */
int report_export(struct report *r, const char *dir, struct error *err);
int report_done(struct report *r, int64_t step, bool paused, MemoryUse *use, struct error *err);
int report_fault(struct report *r, const char *message, bool retryable, struct error *err);

#endif
