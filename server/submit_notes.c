#include "server/submit_notes.h"

#include "plan/placement.h"
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

static bool has_cpus(const struct fabric *f, int64_t wanted)
{
    for (int32_t i = 0; i < f->num_devices && wanted > 0; i++) {
        wanted -= f->types[f->devices[i].type].is_cpu;
    }
    return wanted <= 0;
}

/* What is drained comes back, as a rule: it is taken, too. */
static void note_out_of_use(struct controller *c, const Plan *plan, PlanSummary *summary)
{
    const struct topology *t = controller_topology(c);
    struct place_request r;
    char words[480], *text;
    int64_t mem_bytes = plan->memory ? plan->memory->total_bytes : 0;
    if (!placement_request(&r, plan->spec, plan->backend, mem_bytes)) {
        return;
    }
    attempts_view_restrict(t, &r);
    if (out_of_use_words(t, &r, words, sizeof words)) {
        bool cpu_would = r.gpu_only && has_cpus(t->fabric, plan->mesh->num_ranks);
        msg_printf(&text, "it waits: %s%s", words,
                   cpu_would ? "; resources.backend: cpu takes CPU devices" : "");
        msg_push(&summary->notes, &summary->n_notes, text);
    }
}

void submit_notes_add(struct controller *c, const char *tenant, const Plan *plan,
                      PlanSummary *summary)
{
    note_max(c, tenant, summary);
    note_out_of_use(c, plan, summary);
}
