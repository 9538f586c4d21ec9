#include "server/submit_notes.h"

#include <string.h>

#include "plan/placement.h"
#include "proto/text.h"
#include "server/attempts.h"
#include "server/attempts_view.h"
#include "server/msg.h"
#include "server/out_of_use.h"
#include "server/tenants.h"

/* It is taken all the same: a maximum can be raised. */
static void note_max(struct controller *c, const char *tenant, PlanSummary *summary)
{
    struct tenants *t = controller_tenants(c);
    int32_t i = tenants_find(t, tenant);
    int64_t max = i < 0 ? -1 : tenants_quota(t, i)->max_devices;
    if (max >= 0 && summary->devices > max) {
        char *text;
        msg_printf(&text, "tenant %s may hold at most %lld device%s: it waits until that is raised",
                   tenant, (long long)max, max == 1 ? "" : "s");
        msg_push(&summary->notes, &summary->n_notes, text);
    }
}

/* Too many devices that suit it are out of use: which; words may be NULL. */
static bool is_out_of_use(struct controller *c, const Plan *plan, char *words, size_t size)
{
    const struct topology *t = controller_topology(c);
    struct place_request r;
    int64_t mem_bytes = plan->memory ? plan->memory->total_bytes : 0;
    if (!placement_request(&r, plan->spec, plan->backend, mem_bytes)) {
        return false;
    }
    attempts_view_restrict(t, &r);
    return out_of_use_words(t, &r, words, size);
}

/* Are there CPU devices in use that would take the job? A plan says so, of its memory, domains,
 * type and nodes; its ranks are no more than one node has GPUs. */
static bool cpus_would_do(struct controller *c, const JobSpec *asked, const ProbeReply *facts)
{
    JobSpec *spec = (JobSpec *)text_clone(&asked->base);
    Plan *plan = NULL;
    struct error why;
    bool would = text_set(&spec->base, "resources.backend", "cpu", &why) == 0 &&
                 attempts_plan(c, spec, facts, NULL, 0, &plan, &why) == 0 &&
                 !is_out_of_use(c, plan, NULL, 0);
    msg_free(plan);
    msg_free(spec);
    return would;
}

/* What is drained comes back, as a rule: it is taken, too. */
static void note_out_of_use(struct controller *c, const JobSpec *asked, const ProbeReply *facts,
                            const Plan *plan, PlanSummary *summary)
{
    char words[480], *text;
    if (!is_out_of_use(c, plan, words, sizeof words)) {
        return;
    }
    bool on_gpus = strcmp(plan->backend, "cuda") == 0;
    msg_printf(&text, "it waits: %s%s", words,
               on_gpus && cpus_would_do(c, asked, facts)
                   ? "; resources.backend: cpu takes CPU devices"
                   : "");
    msg_push(&summary->notes, &summary->n_notes, text);
}

void submit_notes_add(struct controller *c, const char *tenant, const JobSpec *asked,
                      const ProbeReply *facts, const Plan *plan, PlanSummary *summary)
{
    note_max(c, tenant, summary);
    note_out_of_use(c, asked, facts, plan, summary);
}
