/* tandem usage: what tenants, or each of their jobs, had of the devices. */
#include <stdio.h>

#include "base/clock.h"
#include "clients/cli/args.h"
#include "clients/cli/duration.h"
#include "clients/cli/human.h"
#include "clients/cli/table.h"
#include "clients/cli/verbs.h"

#define DAY_US ((int64_t)24 * 3600 * 1000000)

static void cell_seconds(struct table *t, double seconds)
{
    char h[HUMAN_MAX], raw[64];
    snprintf(raw, sizeof raw, "%.6f", seconds);
    table_cell(t, seconds > 0 ? human_duration(h, seconds) : "-", raw, NULL);
}

static void cell_int(struct table *t, int64_t value)
{
    char raw[32];
    snprintf(raw, sizeof raw, "%lld", (long long)value);
    table_cell(t, raw, NULL, NULL);
}

static void add_row(struct table *t, const Usage *u, double total_s, bool by_job)
{
    char h[HUMAN_MAX], raw[64];
    if (by_job) {
        cell_int(t, u->job_id);
        table_cell(t, u->job_name, NULL, NULL);
    }
    table_cell(t, u->tenant, NULL, NULL);
    cell_seconds(t, u->device_seconds);
    double share = total_s > 0 ? 100 * u->device_seconds / total_s : 0;
    snprintf(h, sizeof h, "%.1f%%", share);
    snprintf(raw, sizeof raw, "%.17g", share / 100);
    table_cell(t, total_s > 0 ? h : "-", raw, NULL);
    cell_seconds(t, u->borrowed_device_seconds);
    if (!by_job) {
        cell_int(t, u->jobs);
    }
    cell_int(t, u->attempts);
    cell_int(t, u->evictions);
    cell_seconds(t, u->wait_mean_s);
    cell_seconds(t, u->wait_p95_s);
}

static void print_head(const GetUsageReply *r)
{
    char a[HUMAN_MAX], b[HUMAN_MAX];
    int64_t now = clock_wall_us();
    printf("from %s to %s; %lld devices", human_time(a, r->from_us, now),
           human_time(b, r->to_us, now), (long long)r->num_devices);
    if (r->num_drained > 0) {
        printf(", %lld drained", (long long)r->num_drained);
    }
    if (r->has_num_used) {
        printf(", %lld in use now", (long long)r->num_used);
    }
    if (r->has_utilisation) {
        printf("; utilisation %.1f%%", 100 * r->utilisation);
    }
    printf("\n\n");
}

static void print(const struct cli *cli, const GetUsageReply *r, bool by_job)
{
    static const char *const of_tenants[] = {
        "~tenant",   ">device_time", ">share",     ">borrowed", ">jobs",
        ">attempts", ">evictions",   ">wait_mean", ">wait_p95", NULL};
    static const char *const of_jobs[] = {">id",        "~name",     "~tenant",   ">device_time",
                                          ">share",     ">borrowed", ">attempts", ">evictions",
                                          ">wait_mean", ">wait_p95", NULL};
    static const char *const drop[] = {"wait_p95", "attempts", "share", "borrowed", NULL};
    double total_s = 0;
    for (size_t i = 0; i < r->n_usage; i++) {
        total_s += r->usage[i]->device_seconds;
    }
    if (cli->format == FORMAT_TABLE) {
        print_head(r);
        if (r->n_usage == 0) {
            printf("no job held devices in that time\n");
            return;
        }
    }
    struct table *t = table_new(by_job ? of_jobs : of_tenants);
    table_drop_first(t, drop);
    for (size_t i = 0; i < r->n_usage; i++) {
        add_row(t, r->usage[i], total_s, by_job);
    }
    table_print(t, cli);
    table_free(t);
    if (cli->format == FORMAT_TABLE && r->jobs_left_out > 0) {
        printf("and %lld jobs that had less (--limit)\n", (long long)r->jobs_left_out);
    }
}

/* 0, or an exit code. */
static int read_time(const char *verb, const char *flag, const char *text, int64_t now_us,
                     protobuf_c_boolean *has, int64_t *out)
{
    if (!text) {
        return 0;
    }
    *has = 1;
    return duration_read_since(text, now_us, out)
               ? 0
               : cli_usage(verb,
                           "--%s %s: so long ago (2d, 12h) or a time (2026-03-01, "
                           "\"2026-03-01 14:00\")",
                           flag, text);
}

static int run(struct cli *cli, int argc, char **argv)
{
    const char *from = NULL, *to = NULL;
    int64_t days = 0, limit = 0, now_us = clock_wall_us();
    bool by_job = false, has_days = false, has_limit = false;
    GetUsageRequest q = GET_USAGE_REQUEST__INIT;
    const struct arg_flag flags[] = {
        {"from", 'f', ARG_TEXT, &from, NULL},
        {"to", 0, ARG_TEXT, &to, NULL},
        {"days", 'd', ARG_INT, &days, &has_days},
        {"by-job", 'j', ARG_BOOL, &by_job, NULL},
        {"tenant", 't', ARG_TEXT, &q.tenant, NULL},
        {"limit", 'n', ARG_INT, &limit, &has_limit},
        {0},
    };
    if (args_parse(flags, argc, argv, NULL, 0) < 0) {
        return EXIT_USAGE;
    }
    if (has_days && (from || days < 1 || days > 36500)) {
        return cli_usage(argv[0], from ? "--days and --from say the same: leave one out"
                                       : "--days: from 1 to 36500");
    }
    if (has_limit && (limit < 1 || limit > 10000)) {
        return cli_usage(argv[0], "--limit: from 1 to 10000");
    }
    int code = read_time(argv[0], "from", from, now_us, &q.has_from_us, &q.from_us);
    code = code ? code : read_time(argv[0], "to", to, now_us, &q.has_to_us, &q.to_us);
    if (code) {
        return code;
    }
    if (has_days) {
        q.has_from_us = 1;
        q.from_us = (q.has_to_us ? q.to_us : now_us) - days * DAY_US;
    }
    q.has_by_job = 1;
    q.by_job = by_job;
    q.has_limit = has_limit;
    q.limit = (int32_t)limit;
    ProtobufCMessage *reply;
    struct error err;
    if (cli_call(cli, "Admin/GetUsage", &q.base, &get_usage_reply__descriptor, &reply, &err)) {
        return cli_fail(&err);
    }
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        cli_print_message(cli, reply);
    } else {
        print(cli, (const GetUsageReply *)reply, by_job);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return EXIT_DONE;
}

const struct verb verb_usage = {
    .name = "usage",
    .args = "[--days N | --from T] [--to T] [--by-job] [--tenant T] [--limit N]",
    .help = "device-time, waits and evictions by tenant or job",
    .text =
        "Without flags: the last 24 hours, each tenant that you may see.\n\n"
        "  -d, --days N   the last N days\n"
        "  -f, --from T   from then on: so long ago (12h, 7d) or a time (2026-03-01)\n"
        "      --to T     until then\n"
        "  -j, --by-job   a row a job, those that had most first\n"
        "  -t, --tenant T only this tenant's\n"
        "  -n, --limit N  by job: at most so many (1000)\n\n"
        "DEVICE_TIME is devices x time from the start of an attempt until they were free again; "
        "an\n"
        "attempt that reaches over the edge of the time is counted by its part within. BORROWED "
        "is\n"
        "what of that was started beyond the quota. WAIT_MEAN and WAIT_P95 are of the attempts "
        "that\n"
        "started in the time: the mean, and what 95 of 100 did not exceed. -o csv and json have\n"
        "seconds.\n\n"
        "  tandem usage --days 30\n"
        "  tandem usage --from 2026-03-01 --to 2026-04-01 --by-job -o csv > march.csv\n",
    .run = run,
};
