#include <string.h>

#include "base/clock.h"
#include "clients/cli/args.h"
#include "clients/cli/human.h"
#include "clients/cli/job.h"
#include "clients/cli/show.h"
#include "clients/cli/verbs.h"
#include "clients/cli/why.h"

void show_label(const struct cli *cli, const char *name)
{
    printf("%s%-11s%s", cli->colour ? "\033[2m" : "", name, cli->colour ? "\033[0m" : "");
}

static bool filled(const char *text)
{
    return text && text[0];
}

static void print_head(const struct cli *cli, const Job *j)
{
    char h[HUMAN_MAX];
    int64_t now = clock_wall_us(), since = j->created_us;
    for (size_t i = 0; i < j->n_events; i++) {
        since = j->events[i]->has_to ? j->events[i]->time_us : since;
    }
    printf("%s%s%s  job %lld\n", cli->colour ? "\033[1m" : "", j->name ? j->name : "",
           cli->colour ? "\033[0m" : "", (long long)j->id);
    show_label(cli, "state");
    bool ended = job_has_ended(j->state);
    printf("%s%s%s %s%s%s", cli->colour ? job_state_colour(j->state) : "", job_state_word(j->state),
           cli->colour ? "\033[0m" : "", ended ? "" : "for ",
           human_duration(h, (double)(now - since) / 1e6), ended ? " ago" : "");
    printf("\n");
    if (filled(j->message)) {
        show_label(cli, "why");
        printf("%s\n", j->message);
    }
}

/* While it matters: of one that waits, and where it isn't that of most. */
static void print_priority(const struct cli *cli, const Job *j)
{
    const int32_t normal = 500;
    bool waits = j->state == JOB_QUEUED || j->state == JOB_HELD;
    if (!job_has_ended(j->state) && (waits || j->priority != normal)) {
        show_label(cli, "priority");
        printf("%d%s\n", j->priority, j->priority == normal ? " (normal)" : "");
    }
}

static void print_progress(struct cli *cli, const Job *j)
{
    char h[HUMAN_MAX];
    double share = j->total_steps > 0 ? 100.0 * (double)j->step / (double)j->total_steps : 0;
    show_label(cli, "progress");
    printf("step %lld of %lld (%.0f%%)", (long long)j->step, (long long)j->total_steps, share);
    if (j->has_eta_s && j->state == JOB_RUNNING) {
        printf(", %s left", human_duration(h, j->eta_s));
    }
    printf("\n");
    show_curve(cli, j);
}

static void print_layout(const struct cli *cli, const Job *j)
{
    char layout[128];
    const TrainingSpec *t = j->spec ? j->spec->training : NULL;
    job_layout(j->spec, layout, sizeof layout);
    show_label(cli, "layout");
    printf("%s", layout);
    if (t) {
        printf("; %lld samples of %lld tokens a step, micro-batch %lld, %s",
               (long long)t->global_batch_size, (long long)t->seq_len,
               (long long)t->micro_batch_size, t->precision ? t->precision : "fp32");
    }
    printf("\n");
    show_label(cli, "attempt");
    printf("%d", j->attempt);
    if (j->restarts > 0) {
        printf(", %d restart%s", j->restarts, j->restarts == 1 ? "" : "s");
    }
    if (j->evictions > 0) {
        printf(", gave its devices to other jobs ");
        printf(j->evictions == 1 ? "once" : "%d times", j->evictions);
    }
    printf("\n");
}

static void print_times(const struct cli *cli, const Job *j)
{
    char h[HUMAN_MAX];
    int64_t now = clock_wall_us();
    show_label(cli, "times");
    printf("submitted %s", human_time(h, j->created_us, now));
    if (filled(j->user)) {
        printf(" by %s", j->user);
    }
    if (filled(j->tenant) && strcmp(j->tenant, "default") != 0) {
        printf(" of %s", j->tenant);
    }
    if (j->started_us) {
        printf(", started %s", human_time(h, j->started_us, now));
    }
    if (j->ended_us) {
        printf(", ended %s", human_time(h, j->ended_us, now));
        if (j->started_us) {
            printf(" after %s", human_duration(h, (double)(j->ended_us - j->started_us) / 1e6));
        }
    }
    printf("\n");
}

static bool is_checkpoint(const Event *e)
{
    return e->kind && strcmp(e->kind, "checkpoint") == 0 && e->has_step && !e->has_to;
}

static void print_checkpoint(const struct cli *cli, const Job *j)
{
    char h[HUMAN_MAX];
    const Event *newest = NULL;
    for (size_t i = 0; i < j->n_events; i++) {
        const Event *e = j->events[i];
        newest = is_checkpoint(e) ? e : newest;
    }
    if (newest && !filled(j->export_dir)) { /* what a resume or a restart goes on from */
        show_label(cli, "checkpoint");
        printf("step %lld, %s ago\n", (long long)newest->step,
               human_duration(h, (double)(clock_wall_us() - newest->time_us) / 1e6));
    }
}

/* The command that most people want now. */
static void print_next(const struct cli *cli, const Job *j)
{
    bool done = j->state == JOB_SUCCEEDED;
    const char *verb = j->state == JOB_PAUSED     ? "resume"
                       : j->state == JOB_FAILED   ? "logs"
                       : done                     ? "metrics"
                       : !job_has_ended(j->state) ? "watch"
                                                  : NULL;
    if (verb && cli->out_tty) {
        show_label(cli, "next");
        printf("tandem %s %lld%s\n", verb, (long long)j->id, done ? " -s loss -o plot" : "");
    }
}

static void print_folders(const struct cli *cli, const Job *j)
{
    if (filled(j->job_dir)) {
        show_label(cli, "folder");
        printf("%s\n", j->job_dir);
    }
    if (filled(j->export_dir)) {
        show_label(cli, "weights");
        printf("%s\n", j->export_dir);
    }
    for (size_t i = 0; i < j->n_tags; i++) {
        if (i == 0) {
            show_label(cli, "tags");
        }
        printf("%s%s", j->tags[i], i + 1 < j->n_tags ? ", " : "\n");
    }
}

/* What it waits for, from the scheduler itself. */
static void print_why(struct cli *cli, const Job *j)
{
    const WhyReply *w = job_why(cli, j);
    if (!w) {
        return; /* the page stands without it */
    }
    for (size_t i = 0; i < w->n_reasons; i++) {
        if (!filled(j->message) || strcmp(w->reasons[i], j->message) != 0) { /* said above */
            show_label(cli, i == 0 ? "waits" : "");
            printf("%s\n", w->reasons[i]);
        }
    }
    why_print_wait(w);
    protobuf_c_message_free_unpacked((ProtobufCMessage *)(uintptr_t)w, NULL);
}

/* What is wrong with the server, if that is anything. */
static void print_problems(struct cli *cli)
{
    ServerInfoRequest q = SERVER_INFO_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct error err;
    if (cli_call(cli, "Admin/GetServerInfo", &q.base, &server_info__descriptor, &reply, &err)) {
        return;
    }
    const ServerInfo *s = (const ServerInfo *)reply;
    for (size_t i = 0; i < s->n_problems; i++) {
        show_label(cli, "server");
        printf("%s\n", s->problems[i]);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
}

static void print_page(struct cli *cli, const Job *j)
{
    print_head(cli, j);
    if (j->state == JOB_QUEUED) {
        print_why(cli, j);
    }
    if (!job_has_ended(j->state)) {
        print_problems(cli);
    }
    print_priority(cli, j);
    print_progress(cli, j);
    print_layout(cli, j);
    show_placement(cli, j);
    print_times(cli, j);
    show_use(cli, j);
    print_checkpoint(cli, j);
    print_folders(cli, j);
    print_next(cli, j);
    show_attempts(cli, j);
    if (j->n_events > 0) {
        printf("\n%sevents%s\n", cli->colour ? "\033[2m" : "", cli->colour ? "\033[0m" : "");
    }
    struct buf events = {0};
    show_events(cli, j, &events);
    fputs(events.data ? events.data : "", stdout);
    buf_free(&events);
}

static int run(struct cli *cli, int argc, char **argv)
{
    const struct arg_flag flags[] = {{0}};
    const char *ref;
    if (job_parse(flags, argc, argv, &ref)) {
        return EXIT_USAGE;
    }
    Job *job;
    struct error err;
    char id[32];
    if (job_get(cli, job_newest(cli, ref, id), &job, &err)) {
        return cli_fail(&err);
    }
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        cli_print_message(cli, &job->base);
    } else {
        print_page(cli, job);
    }
    job__free_unpacked(job, NULL);
    return EXIT_DONE;
}

const struct verb verb_show = {
    .name = "show",
    .args = "JOB",
    .help = "show one job: state, progress, placement, attempts, events",
    .text =
        "`devices` draws where its ranks are: leaf switches, fast domains, nodes; a number is the\n"
        "rank on that device, a dot a device that it doesn't have, a0..a3 [0-31] four nodes that\n"
        "go on alike. ATTEMPTS have their device-time: devices x time until they were free "
        "again.\n"
        "Of the events, ends of ranks that follow from one end stand in one line, and a long\n"
        "cause is written once.\n\n"
        "With -o json or -o yaml: all of it, the stored spec with every default included,\n"
        "each event whole.\n\n"
        "  tandem show shakespeare\n"
        "  tandem show 7 -o json | jq .state\n",
    .run = run,
};
