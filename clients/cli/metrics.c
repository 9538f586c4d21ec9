#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/args.h"
#include "clients/cli/away.h"
#include "clients/cli/curve.h"
#include "clients/cli/follow.h"
#include "clients/cli/human.h"
#include "clients/cli/job.h"
#include "clients/cli/plot.h"
#include "clients/cli/table.h"
#include "clients/cli/terminal.h"
#include "clients/cli/verbs.h"

enum {
    TABLE_ROWS = 20, /* that a table shows unless it is told which */
    PLOT_POINTS = 2000,
    PLOT_HEIGHT_MAX = 20,
    FOLLOW_WAIT_MS = 200,
};

struct ask {
    const char *job;
    int64_t from, to, points, attempt;
    bool points_given, follow;
};

/* ---- fetching ------------------------------------------------------------------------------ */

/* What a curve lacks that the server once had: said beside it, not in it. */
static void tell_losses(const Metrics *m, bool *thinned)
{
    for (size_t i = 0; i < m->n_gaps; i++) {
        const MetricsGap *g = m->gaps[i];
        fprintf(stderr,
                "tandem: steps %lld to %lld of attempt %d are damaged in the server's database and "
                "left out\n",
                (long long)g->from, (long long)g->to, g->attempt);
    }
    if (m->thinned && !*thinned) {
        *thinned = true;
        fprintf(stderr, "tandem: the job ended long ago: of some of these steps only the extremes "
                        "are kept\n");
    }
}

static int fetch(struct cli *cli, const struct ask *a, struct curve *c, struct error *err)
{
    GetMetricsRequest q = GET_METRICS_REQUEST__INIT;
    q.job = (char *)(uintptr_t)a->job;
    q.series = (char **)(uintptr_t)c->series;
    q.n_series = c->num_series;
    q.has_from = q.has_to = q.has_points = q.has_attempt = 1;
    q.from = a->from;
    q.to = a->to;
    q.points = a->points;
    q.attempt = (int32_t)a->attempt;
    bool thinned = false;
    for (;;) {
        ProtobufCMessage *reply;
        if (cli_call(cli, "Runs/GetMetrics", &q.base, &metrics__descriptor, &reply, err)) {
            return -1;
        }
        const Metrics *m = (const Metrics *)reply;
        curve_add(c, m);
        tell_losses(m, &thinned);
        bool more = m->truncated && m->next_from > q.from;
        q.from = m->next_from;
        protobuf_c_message_free_unpacked(reply, NULL);
        if (!more) {
            return 0;
        }
    }
}

/* ---- printing ------------------------------------------------------------------------------ */

static void print_table(const struct cli *cli, const struct curve *c)
{
    const char *names[CURVE_SERIES_MAX + 3] = {">step", ">attempt"};
    char right[CURVE_SERIES_MAX][32], text[HUMAN_MAX];
    for (size_t s = 0; s < c->num_series; s++) {
        snprintf(right[s], sizeof right[s], ">%s", c->series[s]);
        names[2 + s] = right[s];
    }
    struct table *t = table_new(names);
    for (size_t i = 0; i < c->num_rows; i++) {
        snprintf(text, sizeof text, "%lld", (long long)c->steps[i]);
        table_cell(t, text, NULL, NULL);
        snprintf(text, sizeof text, "%d", c->attempts[i]);
        table_cell(t, text, NULL, NULL);
        for (size_t s = 0; s < c->num_series; s++) {
            double v = curve_value(c, i, s);
            bool count = strncmp(c->series[s], "tokens", 6) == 0;
            if (isnan(v)) {
                snprintf(text, sizeof text, "-");
            } else if (count) {
                human_count(text, v);
            } else if (strcmp(c->series[s], "mfu") == 0) {
                snprintf(text, sizeof text, "%.1f%%", 100 * v);
            } else {
                human_value(text, v);
            }
            table_cell(t, text, NULL, NULL);
        }
    }
    table_print(t, cli);
    table_free(t);
}

static void print_plots(const struct cli *cli, const struct curve *c, const char *job)
{
    double *x = calloc(c->num_rows + 1, sizeof *x), *y = calloc(c->num_rows + 1, sizeof *y);
    struct buf out = {0};
    ASSERT(x && y);
    int height = terminal_height() - 3;
    for (size_t s = 0; s < c->num_series; s++) {
        char title[128], last[HUMAN_MAX] = "-";
        for (size_t i = 0; i < c->num_rows; i++) {
            x[i] = (double)c->steps[i];
            y[i] = curve_value(c, i, s);
            if (isfinite(y[i])) {
                human_value(last, y[i]);
            }
        }
        snprintf(title, sizeof title, "%s of %.64s, now %s", c->series[s], job, last);
        struct plot p = {.title = title,
                         .x_label = "step",
                         .x = x,
                         .y = y,
                         .n = c->num_rows,
                         .width = terminal_width() - 1,
                         .height = height < PLOT_HEIGHT_MAX ? height : PLOT_HEIGHT_MAX,
                         .utf8 = cli->utf8,
                         .colour = cli->colour ? "\033[36m" : NULL};
        buf_puts(&out, s ? "\n" : "");
        plot_draw(&out, &p);
    }
    fputs(out.data ? out.data : "", stdout);
    buf_free(&out);
    free(x);
    free(y);
}

static void print_rows(const struct cli *cli, const struct curve *c)
{
    struct buf out = {0};
    bool json = cli->format == FORMAT_JSON;
    buf_puts(&out, json ? "[" : "");
    if (cli->format == FORMAT_CSV) {
        curve_csv_head(c, &out);
    }
    for (size_t i = 0; i < c->num_rows; i++) {
        buf_puts(&out, json ? (i ? ",\n  " : "\n  ") : cli->format == FORMAT_YAML ? "- " : "");
        curve_row(c, i, cli->format, &out);
        buf_puts(&out, json ? "" : "\n");
    }
    buf_puts(&out, json ? (c->num_rows ? "\n]\n" : "]\n") : "");
    fwrite(out.data ? out.data : "", 1, out.len, stdout);
    buf_free(&out);
}

/* A table without bounds shows where the run is now. */
static int from_latest(struct cli *cli, struct ask *a, struct error *err)
{
    Job *job;
    if (job_get(cli, a->job, &job, err)) {
        return -1;
    }
    a->from = job->step > TABLE_ROWS ? job->step - TABLE_ROWS + 1 : 0;
    job__free_unpacked(job, NULL);
    return 0;
}

static int print_once(struct cli *cli, struct ask *a, struct curve *c)
{
    struct error err;
    bool latest = cli->format == FORMAT_TABLE && !a->points_given && !a->from && !a->to;
    if (latest && from_latest(cli, a, &err)) {
        return cli_fail(&err);
    }
    if (!a->points_given && cli->format == FORMAT_PLOT) {
        a->points = PLOT_POINTS;
    }
    if (fetch(cli, a, c, &err)) {
        return cli_fail(&err);
    }
    if (c->num_rows == 0) {
        fputs(a->from || a->to ? "(no steps there)\n" : "(no steps yet)\n", stderr);
    }
    bool for_people = cli->format == FORMAT_PLOT || cli->format == FORMAT_TABLE;
    if (c->num_rows == 0 && for_people) {
        return EXIT_DONE;
    }
    if (cli->format == FORMAT_PLOT) {
        Job *job = NULL;
        bool named = job_get(cli, a->job, &job, &err) == 0 && job->name;
        print_plots(cli, c, named ? job->name : a->job);
        if (job) {
            job__free_unpacked(job, NULL);
        }
    } else if (cli->format == FORMAT_TABLE) {
        print_table(cli, c);
        if (latest && a->from > 1) {
            fprintf(stderr, "(the latest steps; --from 1, or -o csv, gives all)\n");
        }
    } else {
        print_rows(cli, c);
    }
    return EXIT_DONE;
}

/* ---- following ----------------------------------------------------------------------------- */

/* One line a step, as it comes. */
static void print_step(const struct cli *cli, struct curve *c, const StepMetrics *m)
{
    struct buf out = {0};
    char h[HUMAN_MAX];
    c->num_rows = 0;
    curve_add_step(c, m);
    if (cli->format == FORMAT_TABLE) {
        buf_printf(&out, "step %lld", (long long)m->step);
        for (size_t s = 0; s < c->num_series; s++) {
            double v = curve_value(c, 0, s);
            if (!isnan(v)) {
                buf_printf(&out, "  %s %s", c->series[s],
                           strncmp(c->series[s], "tokens", 6) ? human_value(h, v)
                                                              : human_count(h, v));
            }
        }
    } else {
        buf_puts(&out, cli->format == FORMAT_YAML ? "- " : "");
        curve_row(c, 0, cli->format, &out);
    }
    puts(out.data);
    fflush(stdout);
    buf_free(&out);
}

/* What was printed last, and whether a row comes behind it. */
struct cursor {
    int32_t attempt;
    int64_t step;
    bool said_silent; /* that there is none */
};

static bool is_behind(const struct cursor *at, int32_t attempt, int64_t step)
{
    return attempt > at->attempt || (attempt == at->attempt && step > at->step);
}

static void take_step(const struct cli *cli, const struct ask *a, struct curve *c,
                      struct cursor *at, const StepMetrics *m)
{
    if (!is_behind(at, m->attempt, m->step)) {
        return;
    }
    at->attempt = m->attempt;
    at->step = m->step;
    if (m->step >= a->from && (a->to == 0 || m->step <= a->to)) {
        print_step(cli, c, m);
    }
}

/* The stream was too fast for us: reads what it left out from the database. */
static int fill_gap(struct cli *cli, const struct ask *a, struct curve *c, struct cursor *at,
                    struct error *err)
{
    struct curve all = {0};
    struct ask missing = {.job = a->job, .from = at->step + 1};
    curve_choose(&all, NULL, NULL);
    int r = fetch(cli, &missing, &all, err);
    for (size_t i = 0; r == 0 && i < all.num_rows; i++) {
        StepMetrics m = STEP_METRICS__INIT;
        curve_get_step(&all, i, &m);
        take_step(cli, a, c, at, &m);
    }
    curve_free(&all);
    return r;
}

/* An open stream of a job that has made no step, most often one that waits: said once. */
static void say_silent(struct cursor *at, bool connected)
{
    if (connected && at->attempt == 0 && !at->said_silent) {
        fprintf(stderr, "tandem: no step yet; waiting for one\n");
        at->said_silent = true;
    }
}

/* 0 = the stream ended (or Ctrl-C), -1 = err. *connected: the server took the stream up. */
static int read_stream(struct cli *cli, const struct ask *a, struct curve *c, struct cursor *at,
                       bool *connected, struct error *err)
{
    struct rpc_channel *channel;
    struct rpc_stream *s;
    WatchMetricsRequest q = WATCH_METRICS_REQUEST__INIT;
    q.job = (char *)(uintptr_t)a->job;
    q.has_after_attempt = q.has_after_step = 1;
    q.after_attempt = at->attempt;
    q.after_step = at->step;
    if (cli_channel(cli, &channel, err) ||
        rpc_stream_open(channel, "/tandem.v1.Runs/WatchMetrics", &q.base, &s, err)) {
        return -1;
    }
    int r = 1;
    while (r > 0 && !terminal_interrupted()) {
        ProtobufCMessage *message;
        bool is_open = rpc_stream_is_open(s); /* asked before: one that is refused isn't */
        r = rpc_stream_recv(s, &watch_metrics_reply__descriptor, &message, FOLLOW_WAIT_MS, err);
        if (r < 0 && err->code == ERR_DEADLINE_EXCEEDED) {
            *connected = *connected || is_open;
            say_silent(at, *connected);
            r = 1;
            continue;
        }
        if (r <= 0) {
            break;
        }
        *connected = true;
        const WatchMetricsReply *w = (const WatchMetricsReply *)message;
        if (w->dropped > 0 && fill_gap(cli, a, c, at, err)) {
            r = -1;
        }
        if (r > 0 && w->metrics) {
            take_step(cli, a, c, at, w->metrics);
        }
        protobuf_c_message_free_unpacked(message, NULL);
    }
    rpc_stream_close(s);
    return r < 0 ? -1 : 0;
}

static int follow(struct cli *cli, const struct ask *a, struct curve *c)
{
    struct cursor at = {0};
    struct error err;
    bool was_there = false;
    terminal_catch_interrupt();
    if (cli->format == FORMAT_CSV) {
        struct buf head = {0};
        curve_csv_head(c, &head);
        fputs(head.data, stdout);
        buf_free(&head);
    }
    for (;;) {
        bool connected = false;
        int r = read_stream(cli, a, c, &at, &connected, &err);
        if (terminal_interrupted()) {
            return EXIT_DETACHED;
        }
        if (r == 0) {
            return EXIT_DONE;
        }
        if (connected) {
            was_there = cli->answered = true;
            cli->away_since_ms = 0;
        }
        bool is_busy = err.code == ERR_RESOURCE_EXHAUSTED && was_there;
        if (err.code != ERR_UNAVAILABLE && !is_busy) {
            return cli_fail(&err);
        }
        if (!cli->away_since_ms && cli->answered) {
            fprintf(stderr, "tandem: %s; the job goes on, trying again\n",
                    is_busy ? err.text : "the server is away");
        }
        if (!away_wait(cli, &err)) {
            return cli_fail(&err);
        }
    }
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct ask a = {0};
    const char *series = NULL;
    const struct arg_flag flags[] = {
        {"series", 's', ARG_TEXT, &series, NULL},
        {"from", 0, ARG_INT, &a.from, NULL},
        {"to", 0, ARG_INT, &a.to, NULL},
        {"points", 'n', ARG_INT, &a.points, &a.points_given},
        {"attempt", 0, ARG_INT, &a.attempt, NULL},
        {"follow", 'f', ARG_BOOL, &a.follow, NULL},
        {0},
    };
    if (job_parse(flags, argc, argv, &a.job)) {
        return EXIT_USAGE;
    }
    if (a.follow && cli->format == FORMAT_PLOT) {
        return cli_usage(argv[0], "-f and -o plot don't go together");
    }
    if (a.points_given && a.points < 1) {
        return cli_usage(argv[0], "--points: at least 1");
    }
    if (a.attempt > INT32_MAX) {
        return cli_usage(argv[0], "--attempt: too large");
    }
    struct curve c = {0};
    struct error err;
    char id[32];
    a.job = (a.follow ? job_newest_to_follow : job_newest)(cli, a.job, id);
    char *words = strdup(series ? series : "loss");
    bool all = !series && cli->format != FORMAT_PLOT;
    int code;
    if (curve_choose(&c, all ? NULL : words, &err)) {
        code = cli_usage(argv[0], "%s", err.text);
    } else {
        code = a.follow ? follow(cli, &a, &c) : print_once(cli, &a, &c);
    }
    curve_free(&c);
    free(words);
    return code;
}

const struct verb verb_metrics = {
    .name = "metrics",
    .args = "JOB [--series loss,mfu] [--from N] [--to N] [--points K] [-f] [-o "
            "table|csv|json|yaml|plot]",
    .help = "print or plot the curves of a run",
    .text = "Series: loss, grad_norm, lr, tokens, step_ms, tokens_per_s, mfu.\n\n"
            "  -s, --series A,B  only these, in this order\n"
            "  --from N, --to N  only these steps\n"
            "  -n, --points K    at most K rows; the extremes between them are kept\n"
            "  --attempt A       the curve as that attempt saw it\n"
            "  -f, --follow      go on with each new step until the job ends\n"
            "  -o csv|json       one row a step, full precision; step and attempt come first\n"
            "  -o plot           draw it here\n\n"
            "  tandem metrics shakespeare --series loss -o plot\n"
            "  tandem metrics 7 --series loss,grad_norm -o csv > curve.csv\n",
    .run = run,
};
