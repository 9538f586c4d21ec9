/* tandem top: the cluster, its tenants, running jobs and the queue, again and again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "clients/cli/args.h"
#include "clients/cli/collect.h"
#include "clients/cli/job.h"
#include "clients/cli/terminal.h"
#include "clients/cli/top.h"
#include "clients/cli/verbs.h"

enum {
    PAGE = 1000,
    QUEUED_MAX = 20, /* that are asked for a reason, each a call */
    SLICE_MS = 100,
    LINES_AROUND = 14, /* that jobs can't have */
};

struct answers {
    GetUsageReply *usage; /* owned */
    struct collect running, queued;
    const WhyReply *why[QUEUED_MAX]; /* owned */
    size_t num_why;
};

static void answers_free(struct answers *a)
{
    if (a->usage) {
        get_usage_reply__free_unpacked(a->usage, NULL);
    }
    for (size_t i = 0; i < a->num_why; i++) {
        if (a->why[i]) {
            protobuf_c_message_free_unpacked((ProtobufCMessage *)(uintptr_t)a->why[i], NULL);
        }
    }
    collect_free(&a->running);
    collect_free(&a->queued);
    *a = (struct answers){0};
}

/* All that run, or the first of the queue. */
static int fetch_jobs(struct cli *cli, ListJobsRequest *q, struct collect *out, struct error *err)
{
    q->has_page_size = q->has_before_id = 1;
    do {
        ProtobufCMessage *reply;
        if (cli_call(cli, "Jobs/List", &q->base, &list_jobs_reply__descriptor, &reply, err)) {
            return -1;
        }
        ListJobsReply *r = (ListJobsReply *)reply;
        collect_take(out, (ProtobufCMessage **)r->jobs, &r->n_jobs);
        q->before_id = r->next_before_id;
        list_jobs_reply__free_unpacked(r, NULL);
    } while (q->before_id > 0 && out->num < COLLECT_MAX);
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const Job *x = *(Job *const *)a, *y = *(Job *const *)b;
    return (x->id > y->id) - (x->id < y->id);
}

static int fetch(struct cli *cli, const char *tenant, size_t rows, struct answers *a,
                 struct error *err)
{
    JobState states[] = {JOB_STARTING, JOB_RUNNING, JOB_STOPPING};
    ListJobsRequest running = LIST_JOBS_REQUEST__INIT, queued = LIST_JOBS_REQUEST__INIT;
    GetUsageRequest q = GET_USAGE_REQUEST__INIT;
    ProtobufCMessage *reply;
    q.tenant = (char *)(uintptr_t)tenant;
    q.has_from_us = q.has_to_us = 1;
    q.from_us = q.to_us = clock_wall_us();
    if (cli_call(cli, "Admin/GetUsage", &q.base, &get_usage_reply__descriptor, &reply, err)) {
        return -1;
    }
    a->usage = (GetUsageReply *)reply;
    size_t most = rows < QUEUED_MAX ? rows : QUEUED_MAX;
    running.tenant = queued.tenant = q.tenant;
    running.states = states;
    running.n_states = sizeof states / sizeof *states;
    running.page_size = PAGE;
    queued.has_by_turn = queued.by_turn = 1;
    queued.page_size = (int32_t)most;
    if (fetch_jobs(cli, &running, &a->running, err) != 0 ||
        fetch_jobs(cli, &queued, &a->queued, err) != 0) {
        return -1;
    }
    if (a->running.num > 0) {
        qsort(a->running.items, a->running.num, sizeof *a->running.items, by_id);
    }
    for (size_t i = 0; i < a->queued.num && i < most; i++) {
        a->why[a->num_why++] = job_why(cli, (const Job *)a->queued.items[i]);
    }
    top_sort_queue((Job **)a->queued.items, a->why, a->num_why);
    return 0;
}

static void show(const struct cli *cli, const struct answers *a, size_t rows, bool redraw)
{
    struct buf page = {0};
    const struct top_view v = {.usage = a->usage,
                               .running = (Job *const *)a->running.items,
                               .num_running = a->running.num < rows ? a->running.num : rows,
                               .queued = (Job *const *)a->queued.items,
                               .num_queued = a->num_why,
                               .why = a->why,
                               .all_running = a->running.num,
                               .now_us = clock_wall_us()};
    const struct table_look look = {.colour = cli->colour,
                                    .utf8 = cli->utf8,
                                    .width = cli->out_tty ? (size_t)terminal_width() : 0};
    buf_puts(&page, redraw ? "\033[H\033[J" : "");
    top_write(&v, &look, &page);
    fputs(page.data, stdout);
    fflush(stdout);
    buf_free(&page);
}

/* False: Ctrl-C. */
static bool rest(int64_t ms)
{
    for (; ms > 0 && !terminal_interrupted(); ms -= SLICE_MS) {
        clock_sleep_ms(ms < SLICE_MS ? ms : SLICE_MS);
    }
    return !terminal_interrupted();
}

/* times 0: until Ctrl-C. */
static int follow(struct cli *cli, const char *tenant, int64_t times, int64_t every_ms)
{
    bool redraw = cli->out_tty && times != 1;
    if (redraw) {
        terminal_catch_interrupt();
    }
    for (int64_t i = 1;; i++) {
        struct answers a = {0};
        struct error err;
        /* Half of what fits for those that run, half for those that wait. */
        int height = redraw ? terminal_height() - LINES_AROUND : 2 * PAGE;
        size_t rows = height > 4 ? (size_t)height / 2 : 2;
        if (fetch(cli, tenant, rows, &a, &err) != 0) {
            answers_free(&a);
            return terminal_interrupted() ? EXIT_DONE : cli_fail(&err);
        }
        show(cli, &a, rows, redraw);
        answers_free(&a);
        if (i == times || !rest(every_ms)) {
            return EXIT_DONE;
        }
        if (!redraw) {
            printf("\n");
        }
    }
}

static int run(struct cli *cli, int argc, char **argv)
{
    const char *tenant = NULL;
    int64_t times = 0, seconds = 2;
    bool has_times = false;
    const struct arg_flag flags[] = {
        {"times", 'n', ARG_INT, &times, &has_times},
        {"every", 'e', ARG_INT, &seconds, NULL},
        {"tenant", 't', ARG_TEXT, &tenant, NULL},
        {0},
    };
    if (args_parse(flags, argc, argv, NULL, 0) < 0) {
        return EXIT_USAGE;
    }
    if ((has_times && times < 1) || seconds < 1 || seconds > 3600) {
        return cli_usage(argv[0], has_times && times < 1 ? "--times: at least 1"
                                                         : "--every: from 1 to 3600 seconds");
    }
    return follow(cli, tenant, has_times ? times : cli->out_tty ? 0 : 1, seconds * 1000);
}

const struct verb verb_top = {
    .name = "top",
    .args = "[-n TIMES] [--every S] [--tenant T]",
    .help = "the cluster, tenants, running jobs and the queue, as they change",
    .text =
        "On a terminal the page is drawn anew every 2 seconds, until Ctrl-C; else once.\n\n"
        "  -n, --times N  so many times; 1 = once\n"
        "  -e, --every S  seconds between\n"
        "  -t, --tenant T only this tenant's jobs\n\n"
        "A \"b\" behind a number of devices: borrowed, the job may have to give them back. WHY is\n"
        "in full in `tandem why JOB`.\n\n"
        "  tandem top\n"
        "  tandem top -n 1 | head -1\n",
    .run = run,
    .text_only = true,
};
