/* tandem plan: what a job would be, without a server. */
#include <stdlib.h>
#include <string.h>

#include "clients/cli/args.h"
#include "clients/cli/cli.h"
#include "clients/cli/human.h"
#include "clients/cli/job_file.h"
#include "clients/cli/local_cluster.h"
#include "clients/cli/local_probe.h"
#include "clients/cli/verbs.h"
#include "plan/cluster.h"
#include "plan/plan.h"
#include "plan/spec_check.h"

/* All that one call holds. */
struct planning {
    struct job_file file;
    ProbeReply *facts;
    ClusterSpec *cluster;
    struct spec_unbuilt unbuilt;
    Plan *plan;
    PlanSummary *summary;
};

static void planning_free(struct planning *p)
{
    if (p->summary) {
        plan_summary__free_unpacked(p->summary, NULL);
    }
    if (p->plan) {
        plan__free_unpacked(p->plan, NULL);
    }
    if (p->cluster) {
        cluster_spec__free_unpacked(p->cluster, NULL);
    }
    if (p->facts) {
        probe_reply__free_unpacked(p->facts, NULL);
    }
    spec_unbuilt_free(&p->unbuilt);
    job_file_free(&p->file);
}

static int fail(const struct planning *p, struct error *err)
{
    return job_file_place(&p->file, err) ? -1 : error_wrap(err, "%s", p->file.name);
}

static int make_plan(struct planning *p, const char *file, const char *cluster_file,
                     const struct arg_texts *sets, struct error *err)
{
    if (job_file_read(&p->file, file, sets->items, sets->num, err) != 0) {
        return -1;
    }
    if (spec_check_plan(p->file.spec, &p->unbuilt, err) != 0) {
        return fail(p, err);
    }
    if (cluster_file && cluster_read(cluster_file, &p->cluster, err) != 0) {
        return -1;
    }
    if (local_probe(p->file.spec, !cluster_file, &p->facts, err) != 0) {
        return fail(p, err);
    }
    if (!p->cluster) {
        p->cluster = local_cluster_new(p->facts->peak_flops_fp32, p->facts->peak_flops_fp64);
    }
    struct plan_input in = {.spec = p->file.spec,
                            .model = p->facts->model,
                            .train = (const DataFacts *const *)p->facts->sources,
                            .num_train = p->facts->n_sources,
                            .cluster = p->cluster,
                            .unbuilt = &p->unbuilt};
    if (plan_build(&in, &p->plan, err) != 0) {
        return fail(p, err);
    }
    p->summary = plan_summary(p->plan);
    return 0;
}

/* ---- for people ---- */

static void print_model(const struct planning *p)
{
    char n[HUMAN_MAX];
    const ModelFacts *m = p->plan->model;
    printf("model      %s, %s parameters%s%s\n", p->summary->model,
           human_count(n, (double)m->num_params), m->dtype ? ", stored as " : "",
           m->dtype ? m->dtype : "");
}

static void print_layout(const struct planning *p)
{
    const Plan *plan = p->plan;
    long long ranks = (long long)plan->mesh->num_ranks;
    printf("layout     %s on %lld device%s, backend %s, %d thread%s a rank\n", p->summary->layout,
           ranks, ranks == 1 ? "" : "s", plan->backend, plan->threads_per_rank,
           plan->threads_per_rank == 1 ? "" : "s");
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

/* "54.6 MFLOP" */
static const char *flops_words(char out[HUMAN_MAX], double flops)
{
    static const char units[] = " kMGTPEZY";
    size_t u = 0;
    while (flops >= 999.5 && units[u + 1]) {
        flops /= 1000;
        u++;
    }
    snprintf(out, HUMAN_MAX, "%.3g %.*sFLOP", flops, u > 0, &units[u]);
    return out;
}

static const char *time_words(char out[HUMAN_MAX], double seconds)
{
    if (seconds < 1) {
        snprintf(out, HUMAN_MAX, "%.3g ms", seconds * 1000);
        return out;
    }
    return human_duration(out, seconds);
}

static void print_compute(const Plan *plan)
{
    const TrainingSpec *t = plan->spec->training;
    char a[HUMAN_MAX], b[HUMAN_MAX], c[HUMAN_MAX];
    double step = plan->flops_per_token * (double)t->global_batch_size * (double)t->seq_len;
    printf("compute    %s a token, %s a step\n", flops_words(a, plan->flops_per_token),
           flops_words(b, step));
    double step_s = plan_step_seconds(plan);
    if (step_s > 0) {
        printf("time       about %s a step, %s in all, at %.0f %% of the peak (%s/s a rank)\n",
               time_words(a, step_s), time_words(b, step_s * (double)plan->total_steps),
               PLAN_ASSUMED_MFU * 100, flops_words(c, plan->peak_flops));
    }
}

static void print_memory(const MemoryEstimate *m)
{
    const struct {
        const char *name;
        int64_t bytes;
    } parts[] = {
        {"weights", m->params_bytes},      {"gradients", m->grads_bytes},
        {"optimizer", m->optimizer_bytes}, {"activations", m->activations_bytes},
        {"logits", m->logits_bytes},       {"copy for saving", m->snapshot_bytes},
        {"overhead", m->overhead_bytes},
    };
    char n[HUMAN_MAX];
    printf("memory     %s a rank:", human_bytes(n, (double)m->total_bytes));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        printf("%s %s %s", i ? "," : "", parts[i].name, human_bytes(n, (double)parts[i].bytes));
    }
    if (m->shared_bytes > 0) {
        printf("; of that in shared memory %s", human_bytes(n, (double)m->shared_bytes));
    }
    printf("\n");
}

static void print_for_people(const struct planning *p)
{
    const Stage *stage = p->plan->stages[0];
    print_model(p);
    print_layout(p);
    print_placement(p->plan);
    print_batch(p->plan);
    print_compute(p->plan);
    print_memory(p->plan->memory);
    printf("step       %zu actions, %zu gradient bucket%s\n", stage->n_actions, stage->n_buckets,
           stage->n_buckets == 1 ? "" : "s");
    for (size_t i = 0; i < p->plan->n_notes; i++) {
        printf("%s%s\n", i ? "           " : "notes      ", p->plan->notes[i]);
    }
}

/* ---- as the server answers it ---- */

static void print_message(const struct cli *cli, const struct planning *p)
{
    RankedPlan ranked = RANKED_PLAN__INIT, *list[] = {&ranked};
    PlanReply reply = PLAN_REPLY__INIT;
    ranked.plan = p->plan;
    ranked.summary = p->summary;
    ranked.step_s = plan_step_seconds(p->plan);
    ranked.has_step_s = ranked.step_s > 0;
    reply.n_plans = 1;
    reply.plans = list;
    cli_print_message(cli, &reply.base);
}

static int run(struct cli *cli, int argc, char **argv)
{
    const char *cluster_file = NULL;
    struct arg_texts sets = {0};
    int64_t top = 1;
    const struct arg_flag flags[] = {{"cluster", 0, ARG_TEXT, &cluster_file, NULL},
                                     {"set", 0, ARG_TEXTS, &sets, NULL},
                                     {"top", 0, ARG_INT, &top, NULL},
                                     {0}};
    const char *file = NULL;
    int words = args_parse(flags, argc, argv, &file, 1);
    if (words < 0) {
        return EXIT_USAGE;
    }
    if (words == 0) {
        return cli_usage("plan", "which job file?");
    }
    if (top < 1 || top > 100) {
        return cli_usage("plan", "--top %lld: 1 to 100", (long long)top);
    }
    if (cli->format == FORMAT_CSV || cli->format == FORMAT_PLOT) {
        return cli_usage("plan", "-o: table, json or yaml");
    }
    struct planning p = {0};
    struct error err = {0};
    int rc = make_plan(&p, file, cluster_file, &sets, &err);
    if (rc == 0 && cli->format == FORMAT_TABLE) {
        print_for_people(&p);
    } else if (rc == 0) {
        print_message(cli, &p);
    }
    planning_free(&p);
    return rc == 0 ? EXIT_DONE : cli_fail(&err);
}

const struct verb verb_plan = {
    .name = "plan",
    .args = "FILE [--cluster FILE] [--set a.b=c]... [--top K]",
    .help = "say what a job would be: layout, memory, time; needs no server",
    .text = "Without --cluster the devices are this host's cores. --cluster takes a file like\n"
            "examples/cluster.yaml. --top K shows the K best layouts; a job file that gives its\n"
            "layout has one. -o json prints the whole plan, as ranks get it.\n\n"
            "  tandem plan job.yaml --set parallel.data=4\n",
    .run = run,
};
