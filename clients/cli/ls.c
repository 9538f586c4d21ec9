#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "clients/cli/args.h"
#include "clients/cli/collect.h"
#include "clients/cli/human.h"
#include "clients/cli/job.h"
#include "clients/cli/list.h"
#include "clients/cli/ls_reason.h"
#include "clients/cli/table.h"
#include "clients/cli/verbs.h"
#include "proto/text.h"

enum { PAGE = 200, MAX_JOBS = COLLECT_MAX, MAX_STATES = 16 };

/* All pages, or as many as limit jobs. */
static int fetch(struct cli *cli, ListJobsRequest *q, int64_t limit, struct collect *out,
                 struct error *err)
{
    q->has_page_size = q->has_before_id = 1;
    for (;;) {
        ProtobufCMessage *reply;
        int64_t left = limit - (int64_t)out->num;
        q->page_size = (int32_t)(left < PAGE ? left : PAGE);
        if (cli_call(cli, "Jobs/List", &q->base, &list_jobs_reply__descriptor, &reply, err)) {
            return -1;
        }
        ListJobsReply *r = (ListJobsReply *)reply;
        collect_take(out, (ProtobufCMessage **)r->jobs, &r->n_jobs);
        int64_t next = r->next_before_id;
        list_jobs_reply__free_unpacked(r, NULL);
        if (next == 0 || (int64_t)out->num >= limit) {
            return 0;
        }
        q->before_id = next;
    }
}

/* csv has the two numbers apart, a person reads "3/10". */
static void add_step(struct table *t, const Job *j, bool csv)
{
    char text[64];
    if (csv) {
        snprintf(text, sizeof text, "%lld", (long long)j->step);
        table_cell(t, text, NULL, NULL);
        snprintf(text, sizeof text, "%lld", (long long)j->total_steps);
    } else {
        snprintf(text, sizeof text, "%lld/%lld", (long long)j->step, (long long)j->total_steps);
    }
    table_cell(t, text, NULL, NULL);
}

static void add_row(struct table *t, const Job *j, bool csv, bool with_tenant, bool with_reason)
{
    char h[HUMAN_MAX], raw[64], reason[LS_REASON_COLUMNS + 8];
    bool trained = j->step > 0;
    snprintf(raw, sizeof raw, "%lld", (long long)j->id);
    table_cell(t, raw, NULL, NULL);
    table_cell(t, j->name, NULL, NULL);
    table_cell(t, job_state_word(j->state), NULL, job_state_colour(j->state));
    add_step(t, j, csv);
    snprintf(raw, sizeof raw, "%.17g", j->loss);
    table_cell(t, trained && j->has_loss ? human_value(h, j->loss) : "-",
               trained && j->has_loss ? raw : "", NULL);
    snprintf(raw, sizeof raw, "%.17g", j->tokens_per_s);
    table_cell(t, j->tokens_per_s > 0 ? human_count(h, j->tokens_per_s) : "-",
               j->tokens_per_s > 0 ? raw : "", NULL);
    snprintf(raw, sizeof raw, "%lld", (long long)j->devices);
    table_cell(t, raw, NULL, NULL);
    snprintf(raw, sizeof raw, "%d", j->attempt);
    table_cell(t, raw, NULL, NULL);
    table_cell(t, j->user, NULL, NULL);
    if (with_tenant) {
        table_cell(t, j->tenant, NULL, NULL);
    }
    snprintf(raw, sizeof raw, "%lld", (long long)j->created_us);
    table_cell(t, human_time(h, j->created_us, clock_wall_us()), raw, NULL);
    table_cell(t, j->cause, NULL, NULL);
    if (with_reason) {
        table_cell(t, ls_reason_short(j, reason), j->message ? j->message : "", NULL);
    }
}

/* Only an admin sees jobs of several. */
static bool of_several_tenants(const struct collect *jobs)
{
    for (size_t i = 1; i < jobs->num; i++) {
        const char *a = ((const Job *)jobs->items[i - 1])->tenant;
        const char *b = ((const Job *)jobs->items[i])->tenant;
        if (strcmp(a ? a : "", b ? b : "") != 0) {
            return true;
        }
    }
    return false;
}

static void print_table(const struct cli *cli, const struct collect *jobs, bool csv)
{
    static const char *const drop[] = {"attempt", "devices", "tokens_per_s", "created", "user",
                                       "cause",   "loss",    "tenant",       "reason",  NULL};
    static const char *const csv_names[] = {
        "id",     "name",         "state",   "step",    "total_steps",
        "loss",   "tokens_per_s", "devices", "attempt", "user",
        "tenant", "created",      "cause",   "reason",  NULL};
    bool with_tenant = csv || of_several_tenants(jobs), with_reason = csv || ls_reason_any(jobs);
    const char *names[16] = {">id",           "~name",    "state",    ">step", ">loss",
                             ">tokens_per_s", ">devices", ">attempt", "~user"};
    size_t num = 9;
    if (with_tenant) {
        names[num++] = "~tenant";
    }
    names[num++] = "created";
    names[num++] = "~cause";
    names[num++] = with_reason ? "~reason" : NULL;
    struct table *t = table_new(csv ? csv_names : names);
    table_drop_first(t, drop);
    for (size_t i = 0; i < jobs->num; i++) {
        add_row(t, (const Job *)jobs->items[i], csv, with_tenant, with_reason);
    }
    table_print(t, cli);
    table_free(t);
}

/* chosen: by state or tenant. */
static void print(const struct cli *cli, const struct collect *jobs, bool all, bool chosen)
{
    bool csv = cli->format == FORMAT_CSV;
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        list_print(cli, (const ProtobufCMessage *const *)jobs->items, jobs->num);
        return;
    }
    if (jobs->num == 0 && cli->format == FORMAT_TABLE) {
        printf("no %sjobs%s\n", chosen ? "such " : "",
               all || chosen ? "" : " that are waiting or running (tandem ls -a shows all)");
        return;
    }
    print_table(cli, jobs, csv);
}

/* "RUNNING", "running" or "job_running". */
static int read_state(const char *word, JobState *out)
{
    const char *names[MAX_STATES + 1] = {0};
    for (unsigned i = 0; i < job_state__descriptor.n_values && i < MAX_STATES; i++) {
        const char *name = job_state__descriptor.values[i].name + strlen("JOB_");
        names[i] = name;
        if (strcasecmp(name, word) == 0) {
            *out = (JobState)job_state__descriptor.values[i].value;
            return 0;
        }
    }
    const char *near = text_nearest(word, names);
    cli_usage("ls", "--state %s: there is no such state%s%s%s", word, near ? "; did you mean " : "",
              near ? near : "", near ? "?" : "");
    return -1;
}

static int run(struct cli *cli, int argc, char **argv)
{
    bool all = false;
    int64_t limit = MAX_JOBS;
    struct arg_texts states = {0};
    ListJobsRequest q = LIST_JOBS_REQUEST__INIT;
    const struct arg_flag flags[] = {
        {"all", 'a', ARG_BOOL, &all, NULL},
        {"state", 's', ARG_TEXTS, &states, NULL},
        {"tenant", 't', ARG_TEXT, &q.tenant, NULL},
        {"limit", 'n', ARG_INT, &limit, NULL},
        {0},
    };
    if (args_parse(flags, argc, argv, NULL, 0) < 0) {
        return EXIT_USAGE;
    }
    JobState wanted[ARG_TEXTS_MAX];
    for (int i = 0; i < states.num; i++) {
        if (read_state(states.items[i], &wanted[i])) {
            return EXIT_USAGE;
        }
    }
    q.states = wanted;
    q.n_states = (size_t)states.num;
    q.has_all = 1;
    q.all = all;
    if (limit < 1) {
        return cli_usage(argv[0], "--limit: at least 1");
    }
    struct collect jobs = {0};
    struct error err;
    int code = EXIT_DONE;
    if (fetch(cli, &q, limit, &jobs, &err)) {
        code = cli_fail(&err);
    } else {
        ls_reason_fill(cli, &jobs);
        print(cli, &jobs, all, states.num > 0 || q.tenant);
    }
    collect_free(&jobs);
    return code;
}

const struct verb verb_ls = {
    .name = "ls",
    .args = "[-a] [--state S]... [--tenant T] [--limit N]",
    .help = "list jobs",
    .text = "Without flags: the jobs that have not ended, newest first.\n\n"
            "  -a, --all      also those that have ended\n"
            "  -s, --state S  only these: queued, running, paused, succeeded, failed, ...\n"
            "  -t, --tenant T only this tenant's\n"
            "  -n, --limit N  the newest N\n\n"
            "Where jobs are of more than one tenant, a column says whose.\n"
            "A narrow terminal cuts names and leaves columns out; -o csv and json have all.\n\n"
            "  tandem ls --state failed -n 10\n"
            "  tandem ls -a -o csv > jobs.csv\n",
    .run = run,
};
