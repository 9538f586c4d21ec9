#include "runtime/rank/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "model/family.h"

#define PROGRESS_EVERY_MS 300
#define LINE_EVERY_MS 1000

struct report {
    const RankStart *start; /* borrowed */
    const Plan *plan;       /* in start */
    struct link *link;      /* borrowed */
    const char *phase;      /* what was said last; a literal */
    int64_t phase_ms, line_ms;
};

int report_new(struct report **out, const RankStart *start, struct link *link, struct error *err)
{
    struct report *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the report");
    r->start = start;
    r->plan = start->start->plan;
    r->link = link;
    r->phase = "";
    *out = r;
    return 0;
}

void report_free(struct report *r)
{
    free(r);
}

int report_phase(struct report *r, int64_t step, const char *phase, struct error *err)
{
    int64_t now_ms = clock_mono_ms();
    if (strcmp(phase, r->phase) == 0 && now_ms - r->phase_ms < PROGRESS_EVERY_MS)
        return 0;
    r->phase = phase;
    r->phase_ms = now_ms;
    Progress progress = PROGRESS__INIT;
    progress.has_rank = progress.has_step = 1;
    progress.rank = r->start->rank;
    progress.step = step;
    progress.phase = (char *)phase;
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_PROGRESS;
    up.progress = &progress;
    return link_send(r->link, &up, err);
}

int report_memory(struct report *r, int64_t step, MemoryUse *use, struct error *err)
{
    Progress progress = PROGRESS__INIT;
    progress.has_rank = progress.has_step = 1;
    progress.rank = r->start->rank;
    progress.step = step;
    progress.phase = (char *)r->phase;
    progress.memory = use;
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_PROGRESS;
    up.progress = &progress;
    return link_send(r->link, &up, err);
}

/* A line for people: the first and the last step, and one a second between them. */
static void print_line(struct report *r, int64_t step, const StepMetrics *m)
{
    int64_t now_ms = clock_mono_ms();
    if (step > 1 && step < r->plan->total_steps && now_ms - r->line_ms < LINE_EVERY_MS)
        return;
    r->line_ms = now_ms;
    char mfu[32] = "";
    if (m->has_mfu)
        snprintf(mfu, sizeof(mfu), " mfu %.1f%%", 100.0 * m->mfu);
    log_info("step %lld loss %.4f grad_norm %.4f lr %.3e %.0f tokens/s%s", (long long)step, m->loss,
             m->grad_norm, m->lr, m->tokens_per_s, mfu);
}

/* Of all ranks. Packed documents: what this step's own need, so that padding and positions of other
 * documents count for nothing. */
static double step_flops(const Plan *plan, const struct step_result *result)
{
    const TrainingSpec *training = plan->spec->training;
    if (result->tokens > 0)
        return result->tokens *
               family_flops_per_token(plan->model->config, result->attended / result->tokens);
    return plan->flops_per_token * (double)training->global_batch_size * (double)training->seq_len;
}

int report_step(struct report *r, int64_t step, const struct step_result *result, struct error *err)
{
    if (r->start->rank != 0)
        return 0;
    const TrainingSpec *training = r->plan->spec->training;
    double step_s = (double)(result->duration_ns > 0 ? result->duration_ns : 1) * 1e-9;
    double step_tokens = (double)training->global_batch_size * (double)training->seq_len;
    StepMetrics m = STEP_METRICS__INIT;
    m.has_job_id = m.has_attempt = m.has_step = m.has_loss = m.has_grad_norm = m.has_lr = 1;
    m.has_tokens = m.has_step_ms = m.has_tokens_per_s = 1;
    m.job_id = r->start->job_id;
    m.attempt = r->start->attempt;
    m.step = step;
    m.loss = result->loss;
    m.grad_norm = result->grad_norm;
    m.lr = result->lr;
    m.tokens = step * training->global_batch_size * training->seq_len;
    m.step_ms = step_s * 1e3;
    m.tokens_per_s = step_tokens / step_s;
    if (r->plan->peak_flops > 0.0) {
        m.has_mfu = 1;
        m.mfu = step_flops(r->plan, result) /
                (step_s * r->plan->peak_flops * (double)r->plan->mesh->num_ranks);
    }
    print_line(r, step, &m);
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_METRICS;
    up.metrics = &m;
    return link_send(r->link, &up, err);
}

int report_checkpoint(struct report *r, int64_t step, const char *dir, int64_t size_bytes,
                      double loss, struct error *err)
{
    char path[256];
    snprintf(path, sizeof(path), "ckpt/%s", dir);
    log_info("checkpoint of step %lld: %s, %lld bytes", (long long)step, path,
             (long long)size_bytes);
    CheckpointDone done = CHECKPOINT_DONE__INIT;
    done.has_step = done.has_size_bytes = done.has_loss = 1;
    done.step = step;
    done.dir = path;
    done.size_bytes = size_bytes;
    done.loss = loss;
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_CHECKPOINT_DONE;
    up.checkpoint_done = &done;
    return link_send(r->link, &up, err);
}

int report_export(struct report *r, const char *dir, struct error *err)
{
    ExportDone done = EXPORT_DONE__INIT;
    done.dir = (char *)dir;
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_EXPORT_DONE;
    up.export_done = &done;
    return link_send(r->link, &up, err);
}

int report_done(struct report *r, int64_t step, bool paused, MemoryUse *use, struct error *err)
{
    RankDone done = RANK_DONE__INIT;
    done.has_paused = done.has_step = 1;
    done.paused = paused;
    done.step = step;
    done.memory = use;
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_DONE;
    up.done = &done;
    return link_send(r->link, &up, err);
}

int report_fault(struct report *r, const char *message, bool retryable, struct error *err)
{
    RankFault fault = RANK_FAULT__INIT;
    fault.has_retryable = 1;
    fault.message = (char *)message;
    fault.retryable = retryable;
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_FAULT;
    up.fault = &fault;
    return link_send(r->link, &up, err);
}
