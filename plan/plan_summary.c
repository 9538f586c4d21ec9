/* A plan in a few lines for people. */
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "plan/layout_rules.h"

/* "tiny-llama (llama)": the folder's name, or that of config.json's folder. */
static char *model_words(const Plan *plan)
{
    const ModelSpec *m = plan->spec->model;
    const char *path = m && m->path ? m->path : m && m->config ? m->config : "";
    size_t len = strlen(path);
    while (len > 0 && path[len - 1] == '/') {
        len--;
    }
    if (m && !m->path && len > 12 && strncmp(path + len - 12, "/config.json", 12) == 0) {
        len -= 12;
    }
    size_t begin = len;
    while (begin > 0 && path[begin - 1] != '/') {
        begin--;
    }
    struct buf b = {0};
    if (len > begin) {
        buf_append(&b, path + begin, len - begin);
        buf_printf(&b, " (%s%s)", plan->model->config->model_type,
                   m->path ? "" : ", random weights");
    } else {
        buf_puts(&b, plan->model->config->model_type);
    }
    return buf_take(&b);
}

static char *layout_of(const ParallelSpec *layout)
{
    struct buf b = {0};
    layout_words(&b, layout);
    if (b.len == 0) {
        buf_puts(&b, "data 1");
    }
    return buf_take(&b);
}

static char **copy_lines(char *const *lines, size_t num)
{
    char **out = calloc(num ? num : 1, sizeof *out);
    ASSERT(out);
    for (size_t i = 0; i < num; i++) {
        out[i] = strdup(lines[i]);
        ASSERT(out[i]);
    }
    return out;
}

PlanSummary *plan_summary(const Plan *plan)
{
    PlanSummary *s = malloc(sizeof *s);
    ASSERT(s);
    plan_summary__init(s);
    s->model = model_words(plan);
    s->has_num_params = 1;
    s->num_params = plan->model->num_params;
    s->layout = layout_of(plan->spec->parallel->layout);
    s->has_devices = 1;
    s->devices = plan->mesh->num_ranks;
    s->has_micro_batches = 1;
    s->micro_batches = plan->micro_batches;
    s->has_total_steps = 1;
    s->total_steps = plan->total_steps;
    s->has_mem_bytes_per_rank = 1;
    s->mem_bytes_per_rank = plan->memory->total_bytes;
    s->has_flops_per_token = 1;
    s->flops_per_token = plan->flops_per_token;
    s->backend = strdup(plan->backend);
    s->precision = strdup(plan->spec->training->precision);
    ASSERT(s->backend && s->precision);
    s->n_notes = plan->n_notes;
    s->notes = copy_lines(plan->notes, plan->n_notes);
    s->n_unbuilt = plan->n_unbuilt;
    s->unbuilt = copy_lines(plan->unbuilt, plan->n_unbuilt);
    return s;
}
