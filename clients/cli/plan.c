/* tandem plan: what a job would be, without a server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/args.h"
#include "clients/cli/cli.h"
#include "clients/cli/job_file.h"
#include "clients/cli/local_cluster.h"
#include "clients/cli/local_probe.h"
#include "clients/cli/plan_kernels.h"
#include "clients/cli/plan_print.h"
#include "clients/cli/verbs.h"
#include "plan/cluster.h"
#include "plan/plan.h"
#include "plan/spec_check.h"
#include "plan/step_time.h"

/* All that one call holds. */
struct planning {
    struct job_file file;
    ProbeReply *facts;
    ClusterSpec *cluster;
    struct spec_unbuilt unbuilt;
    Plan *plan;
    PlanSummary *summary;
    struct step_time time;
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

/* A host has few devices; most want to know of others. */
static void add_hint(struct error *err)
{
    size_t len = strlen(err->text);
    snprintf(err->text + len, sizeof err->text - len,
             " (this host's cores; --cluster FILE plans on other devices, `tandem submit "
             "--dry-run` on the server's)");
}

/* A plan is often made where the data isn't, or not yet. */
static bool lacks_data(const JobSpec *spec)
{
    for (size_t i = 0; i < spec->data->n_train; i++) {
        if (access(spec->data->train[i]->path, F_OK) != 0 &&
            (errno == ENOENT || errno == ENOTDIR)) {
            return true;
        }
    }
    return false;
}

static int make_plan(struct planning *p, const char *file, const char *cluster_file,
                     const struct arg_texts *sets, struct error *too_little, struct error *err)
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
    bool no_data = lacks_data(p->file.spec) && !plan_needs_data(p->file.spec);
    if (local_probe(p->file.spec, !no_data, !cluster_file, &p->facts, err) != 0) {
        return fail(p, err);
    }
    if (!p->cluster) {
        p->cluster = local_cluster_new(p->facts->peak_flops_fp32, p->facts->peak_flops_fp64);
    }
    struct plan_input in = {.spec = p->file.spec,
                            .model = p->facts->model,
                            .train = (const DataFacts *const *)p->facts->sources,
                            .num_train = p->facts->n_sources,
                            .no_data = no_data,
                            .cluster = p->cluster,
                            .unbuilt = &p->unbuilt,
                            .too_little = too_little};
    if (plan_build(&in, &p->plan, err) != 0) {
        bool lacks = !cluster_file && (strstr(err->text, "resources.devices:") ||
                                       strstr(err->text, "resources.type:") ||
                                       strstr(err->text, "a cluster file that names"));
        fail(p, err);
        if (lacks) {
            add_hint(err);
        }
        return -1;
    }
    p->summary = plan_summary(p->plan);
    p->time = step_time_find(p->plan, p->cluster);
    return 0;
}

/* ---- as a message ---- */

/* The server's. */
static void print_message(const struct cli *cli, const struct planning *p)
{
    RankedPlan ranked = RANKED_PLAN__INIT, *list[] = {&ranked};
    PlanReply reply = PLAN_REPLY__INIT;
    ranked.plan = p->plan;
    ranked.summary = p->summary;
    ranked.step_s = p->time.step_s;
    ranked.has_step_s = ranked.step_s > 0;
    reply.n_plans = 1;
    reply.plans = list;
    cli_print_message(cli, &reply.base);
}

/* ---- what a step launches ---- */

/* -1: no such word. */
static int attention_of(const char *word)
{
    for (int i = 0; kernel_attention_names[i]; i++) {
        if (strcmp(kernel_attention_names[i], word) == 0) {
            return i;
        }
    }
    return -1;
}

static int print_kernels(const struct cli *cli, const struct planning *p, int attention,
                         struct error *err)
{
    struct kernel_table *table;
    if (kernel_table_new(&table, p->plan, p->cluster, (enum kernel_attention)attention, err) != 0) {
        return -1;
    }
    plan_kernels_print(cli, table, p->plan);
    kernel_table_free(table);
    return 0;
}

static int run(struct cli *cli, int argc, char **argv)
{
    const char *cluster_file = NULL, *attention_word = NULL;
    bool kernels = false;
    struct arg_texts sets = {0};
    int64_t top = 1;
    const struct arg_flag flags[] = {{"cluster", 0, ARG_TEXT, &cluster_file, NULL},
                                     {"set", 0, ARG_TEXTS, &sets, NULL},
                                     {"kernels", 0, ARG_BOOL, &kernels, NULL},
                                     {"attention", 0, ARG_TEXT, &attention_word, NULL},
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
    if (attention_word && !kernels) {
        return cli_usage("plan", "--attention goes with --kernels");
    }
    int attention = attention_of(attention_word ? attention_word : "own");
    if (attention < 0) {
        return cli_usage("plan", "--attention %s: own, auto or cudnn", attention_word);
    }
    if (kernels ? cli->format == FORMAT_YAML || cli->format == FORMAT_PLOT
                : cli->format == FORMAT_CSV || cli->format == FORMAT_PLOT) {
        return cli_usage("plan", kernels ? "-o with --kernels: table, csv or json"
                                         : "-o: table, json or yaml");
    }
    struct planning p = {0};
    struct error err = {0}, too_little = {0};
    bool page = cli->format == FORMAT_TABLE; /* that of a plan that doesn't fit says where */
    int rc = make_plan(&p, file, cluster_file, &sets, page ? &too_little : NULL, &err);
    if (rc == 0 && kernels) {
        rc = print_kernels(cli, &p, attention, &err);
    } else if (rc == 0 && page) {
        plan_print(p.plan, p.summary, p.cluster, &p.time);
    } else if (rc == 0) {
        print_message(cli, &p);
    }
    if (rc == 0 && too_little.code != ERR_OK) {
        fflush(stdout);
        err = too_little;
        rc = fail(&p, &err);
    }
    planning_free(&p);
    return rc == 0 ? EXIT_DONE : cli_fail(&err);
}

const struct verb verb_plan = {
    .name = "plan",
    .args = "FILE [--cluster FILE] [--set a.b=c]... [--kernels [--attention WORD]] [--top K]",
    .help = "say what a job would be: layout, memory, time; needs no server",
    .text =
        "Without --cluster the devices are this host's cores; what the server has to offer is\n"
        "asked by `tandem submit FILE --dry-run`. --cluster takes a file like\n"
        "examples/cluster.yaml. Any layout is answered for; what can't be run yet is said at "
        "the end.\n"
        "--top K shows the K best layouts; a job file that gives its layout, as all do for now, "
        "has one.\n"
        "What doesn't fit its devices is shown with what it lacks; the exit code is 1 then.\n"
        "-o json prints the whole plan, as ranks get it.\n"
        "--kernels lists what a step of rank 0 launches, each with FLOPs, bytes and predicted "
        "time, what\n"
        "bounds it, and what the times rest on (-o csv, -o json). --attention own, auto (cuDNN's\n"
        "forward pass, as where it is installed) or cudnn (both of its passes).\n\n"
        "  tandem plan job.yaml --set parallel.data=2\n"
        "  tandem plan job.yaml --cluster examples/cluster-dgx.yaml --set parallel.tensor=8\n"
        "  tandem plan job.yaml --cluster examples/cluster.yaml --kernels\n",
    .run = run,
};
