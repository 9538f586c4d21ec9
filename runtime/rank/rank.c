/* A rank's life: open what the plan names, load or draw the weights, train, save, export, close. */
#include "runtime/rank/rank.h"

#include <stdio.h>

#include "runtime/rank/measure.h"
#include "runtime/rank/peers.h"
#include "runtime/rank/state.h"
#include "runtime/rank/trainer.h"
#include "runtime/rank/weights.h"
#include "runtime/rank/wiring.h"

static int train(struct rank *r, struct error *err)
{
    bool paused;
    if (trainer_run(r, &paused, err) != 0)
        return -1;
    if (!paused && r->idx == 0 && r->plan->spec->checkpoint->export_at_end &&
        weights_export(r, err) != 0)
        return -1;
    MemoryUse use;
    measure_memory(r, &use);
    return report_done(r->report, r->step, paused, &use, err);
}

/* Would another attempt fare better? Not where the fault lies in what it would read again: the
 * plan, the model, the data, the arithmetic of this very step. */
static bool is_retryable(const struct error *err)
{
    switch (err->code) {
    case ERR_INVALID_ARGUMENT:
    case ERR_NOT_FOUND:
    case ERR_PERMISSION_DENIED:
    case ERR_FAILED_PRECONDITION:
    case ERR_OUT_OF_RANGE:
    case ERR_UNIMPLEMENTED:
        return false;
    default:
        return true;
    }
}

/* The others needn't wait for this rank any more, nor its own streams for them. */
static void let_go(struct rank *r, const struct error *err)
{
    char reason[ERROR_TEXT_MAX + 32];
    snprintf(reason, sizeof(reason), "rank %d: %s", r->idx, err->text);
    peers_let_go(r, reason);
}

int rank_run(const struct rank_options *options, bool *retryable, struct error *err)
{
    struct error own = {0};
    err = err != NULL ? err : &own;
    struct rank r = {
        .options = options,
        .plan = options->start->start->plan,
        .idx = options->start->rank,
    };
    *retryable = true;
    if (report_new(&r.report, options->start, options->link, err) != 0)
        return -1;
    int rc = report_phase(r.report, 0, "load", err);
    if (rc == 0)
        rc = wiring_open(&r, err);
    if (rc == 0)
        rc = weights_fill(&r, err);
    if (rc == 0)
        rc = train(&r, err);
    if (rc != 0) {
        *retryable = is_retryable(err);
        /* If the link is what failed, nobody listens any more. */
        report_fault(r.report, err->text, *retryable, NULL);
        let_go(&r, err);
    }
    wiring_close(&r);
    report_free(r.report);
    return rc;
}
