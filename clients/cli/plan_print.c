#include "clients/cli/plan_print.h"

#include <stdio.h>
#include <string.h>

#include "clients/cli/human.h"
#include "clients/cli/plan_mesh.h"
#include "plan/plan.h"

#define INDENT "           "

static void print_model(const Plan *plan, const PlanSummary *summary)
{
    char n[HUMAN_MAX];
    const ModelFacts *m = plan->model;
    printf("model      %s, %s parameters%s%s\n", summary->model,
           human_count(n, (double)m->num_params), m->dtype ? ", stored as " : "",
           m->dtype ? m->dtype : "");
}

static void print_layout(const Plan *plan, const PlanSummary *summary)
{
    long long ranks = (long long)plan->mesh->num_ranks;
    printf("layout     %s on %lld device%s, %s, backend %s, %d thread%s a rank\n", summary->layout,
           ranks, ranks == 1 ? "" : "s", plan->spec->training->precision, plan->backend,
           plan->threads_per_rank, plan->threads_per_rank == 1 ? "" : "s");
}

/* Runs of ranks on one node: "alpha:0-3, beta:0-3". */
static void print_placement(const Plan *plan)
{
    printf("devices    ");
    size_t runs = 0;
    for (size_t i = 0; i < plan->n_placement;) {
        const RankPlacement *first = plan->placement[i];
        size_t end = i + 1;
        while (end < plan->n_placement && strcmp(plan->placement[end]->node, first->node) == 0 &&
               plan->placement[end]->device == first->device + (int32_t)(end - i)) {
            end++;
        }
        if (++runs > 8) {
            printf(", and %zu more ranks", plan->n_placement - i);
            break;
        }
        printf("%s%s:%d", runs > 1 ? ", " : "", first->node, first->device);
        if (end - i > 1) {
            printf("-%d", plan->placement[end - 1]->device);
        }
        i = end;
    }
    printf("\n");
}

static void print_mesh(const Plan *plan, const ClusterSpec *cluster)
{
    struct buf b = {0};
    buf_puts(&b, "");
    plan_mesh_draw(&b, plan, cluster, "mesh       ", INDENT);
    plan_mesh_axes(&b, plan, "axes       ", INDENT);
    plan_mesh_score(&b, plan, "placement  ");
    fputs(b.data, stdout);
    buf_free(&b);
}

static void print_batch(const Plan *plan)
{
    const TrainingSpec *t = plan->spec->training;
    char n[HUMAN_MAX];
    printf("batch      %lld samples of %lld tokens a step = %lld rank%s x %lld micro-batch%s of "
           "%lld\n",
           (long long)t->global_batch_size, (long long)t->seq_len, (long long)plan->mesh->data,
           plan->mesh->data == 1 ? "" : "s", (long long)plan->micro_batches,
           plan->micro_batches == 1 ? "" : "es", (long long)t->micro_batch_size);
    double tokens = (double)plan->total_steps * (double)t->global_batch_size * (double)t->seq_len;
    printf("length     %lld step%s, %s tokens\n", (long long)plan->total_steps,
           plan->total_steps == 1 ? "" : "s", human_count(n, tokens));
}

static const char *time_words(char out[HUMAN_MAX], double seconds)
{
    if (seconds < 1) {
        snprintf(out, HUMAN_MAX, "%.3g ms", seconds * 1000);
        return out;
    }
    if (seconds < 99.95) {
        snprintf(out, HUMAN_MAX, "%.1fs", seconds);
        return out;
    }
    return human_duration(out, seconds);
}

/* Parts of the step that are there, each with its share. */
static void print_cost(const CostEstimate *c)
{
    const struct {
        const char *name;
        double s;
    } parts[] = {{"compute", c->compute_s},
                 {"tensor", c->tensor_s},
                 {"context", c->context_s},
                 {"expert", c->expert_s},
                 {"between stages", c->pipeline_s},
                 {"data", c->data_s},
                 {"idle (bubble)",
                  c->bubble < 1 ? c->bubble / (1 - c->bubble) *
                                      (c->compute_s + c->tensor_s + c->context_s + c->expert_s)
                                : 0}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char n[HUMAN_MAX];
        if (parts[i].s > 0) {
            printf(INDENT "%-16s %10s %5.1f %%\n", parts[i].name, time_words(n, parts[i].s),
                   100 * parts[i].s / c->step_s);
        }
    }
}

static void print_compute(const Plan *plan, const struct step_time *time)
{
    const TrainingSpec *t = plan->spec->training;
    char a[HUMAN_MAX], b[HUMAN_MAX], c[HUMAN_MAX];
    double step = plan->flops_per_token * (double)t->global_batch_size * (double)t->seq_len;
    printf("compute    %s a token, %s a step\n", human_metric(a, plan->flops_per_token, "FLOP"),
           human_metric(b, step, "FLOP"));
    double step_s = time->step_s;
    if (step_s <= 0) {
        return;
    }
    double tokens = (double)t->global_batch_size * (double)t->seq_len;
    printf("time       about %s a step, %s tokens/s, %s in all (a prediction%s)\n",
           time_words(a, step_s), human_count(c, tokens / step_s),
           time_words(b, step_s * (double)plan->total_steps),
           time->by_launches ? " launch by launch; --kernels lists them"
                             : " by formula, at an assumed share of the peak");
    printf(INDENT "MFU %.0f %% of %s/s a rank\n", 100 * time->mfu,
           human_metric(c, plan->peak_flops, "FLOP"));
    if (time->by_launches && plan->cost) {
        printf(INDENT "by formula, at an assumed share of the peak, %s:\n",
               time_words(a, plan_step_seconds(plan)));
    }
    if (plan->cost) {
        print_cost(plan->cost);
    }
}

/* What the smallest of the devices has; 0 = not known, as where ranks share their host's. */
static int64_t device_memory(const Plan *plan, const ClusterSpec *cluster)
{
    int64_t least = 0;
    size_t n = 0;
    for (size_t i = 0; i < plan->n_placement; i++) {
        const RankPlacement *p = plan->placement[i];
        /* Neighbours in rank are on one node or on neighbours, mostly. */
        for (size_t tried = 0; strcmp(cluster->nodes[n]->name, p->node) != 0; tried++) {
            ASSERT(tried < cluster->n_nodes);
            n = (n + 1) % cluster->n_nodes;
        }
        for (size_t k = 0; k < cluster->nodes[n]->n_devices; k++) {
            const DeviceInfo *d = cluster->nodes[n]->devices[k];
            if (d->index == p->device && d->mem_bytes > 0 && (!least || d->mem_bytes < least)) {
                least = d->mem_bytes;
            }
        }
    }
    return least;
}

static void print_memory(const Plan *plan, const ClusterSpec *cluster)
{
    const MemoryEstimate *m = plan->memory;
    int64_t have = device_memory(plan, cluster);
    const struct {
        const char *name;
        int64_t bytes;
    } parts[] = {
        {"weights", m->params_bytes},
        {"gradients", m->grads_bytes},
        {"optimizer", m->optimizer_bytes},
        {"gathered units", m->gathered_bytes},
        {"activations", m->activations_bytes},
        {"logits", m->logits_bytes},
        {"backward pass", m->backward_bytes},
        {"exchange", m->exchange_bytes},
        {"workspace", m->workspace_bytes},
        {"copy for saving", m->host_bytes > 0 ? 0 : m->snapshot_bytes},
        {"overhead", m->overhead_bytes},
    };
    char n[HUMAN_MAX];
    printf("memory     %s a rank", human_bytes(n, (double)m->total_bytes));
    if (have > 0) {
        printf(", a device has %s", human_bytes(n, (double)have));
        if (m->total_bytes > have) {
            printf(": %s too little", human_bytes(n, (double)(m->total_bytes - have)));
        }
    }
    if (m->shared_bytes > 0) {
        printf("; %sin shared memory %s", m->host_bytes > 0 ? "" : "of that ",
               human_bytes(n, (double)m->shared_bytes));
    }
    if (m->host_bytes > 0) {
        printf("; in the host's memory %s", human_bytes(n, (double)m->host_bytes));
    }
    printf("\n");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].bytes > 0) {
            printf(INDENT "%-16s %10s %5.1f %%\n", parts[i].name,
                   human_bytes(n, (double)parts[i].bytes),
                   100 * (double)parts[i].bytes / (double)m->total_bytes);
        }
    }
}

static void print_lines(const char *head, char *const *lines, size_t num)
{
    for (size_t i = 0; i < num; i++) {
        printf("%s%s\n", i ? INDENT : head, lines[i]);
    }
}

static void print_steps(const Plan *plan)
{
    size_t actions = 0, buckets = 0;
    for (size_t i = 0; i < plan->n_stages; i++) {
        actions += plan->stages[i]->n_actions;
        buckets += plan->stages[i]->n_buckets;
    }
    printf("step       ");
    if (actions > 0) { /* none where the runtime has no schedule for the layout yet */
        printf("%zu actions, ", actions);
    }
    printf("%zu gradient bucket%s", buckets, buckets == 1 ? "" : "s");
    if (plan->n_stages > 1) {
        printf(" over %zu stages", plan->n_stages);
    }
    printf("\n");
}

void plan_print(const Plan *plan, const PlanSummary *summary, const ClusterSpec *cluster,
                const struct step_time *time)
{
    print_model(plan, summary);
    print_layout(plan, summary);
    print_placement(plan);
    print_mesh(plan, cluster);
    print_batch(plan);
    print_compute(plan, time);
    print_memory(plan, cluster);
    print_steps(plan);
    print_lines("notes      ", plan->notes, plan->n_notes);
    if (plan->n_unbuilt > 0) {
        printf("not yet    this plan can't be started yet:\n");
        print_lines(INDENT, plan->unbuilt, plan->n_unbuilt);
    }
}
