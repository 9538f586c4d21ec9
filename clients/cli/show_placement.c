#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "clients/cli/human.h"
#include "clients/cli/job.h"
#include "clients/cli/placement.h"
#include "clients/cli/show.h"
#include "clients/cli/table.h"
#include "clients/cli/terminal.h"

#define INDENT "           "
/* Where stdout is no terminal. */
#define WIDTH 100

static const char *link_words(const char *worst)
{
    static const struct {
        const char *word, *words;
    } links[] = {{"domain", "in a fast domain"},
                 {"node", "within nodes"},
                 {"leaf", "over leaf switches"},
                 {"tree", "over the switch tree"},
                 {"far", "over no known switch"}};
    for (size_t i = 0; worst && i < sizeof links / sizeof *links; i++) {
        if (strcmp(links[i].word, worst) == 0) {
            return links[i].words;
        }
    }
    return NULL;
}

/* "data 4 over leaf switches, tensor 2 in a fast domain" */
static void print_mesh(const struct cli *cli, const Job *j)
{
    for (size_t i = 0; i < j->n_axes; i++) {
        const JobAxis *a = j->axes[i];
        const char *words = link_words(a->worst);
        if (i == 0) {
            show_label(cli, "mesh");
        }
        printf("%s%s %lld%s%s", i ? ", " : "", a->axis ? a->axis : "", (long long)a->size,
               words ? " " : "", words ? words : "");
    }
    printf("%s", j->n_axes ? "\n" : "");
}

/* NULL: the picture stands without it. */
static ClusterSpec *fetch_cluster(struct cli *cli)
{
    GetTopologyRequest q = GET_TOPOLOGY_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct error err;
    return cli_call(cli, "Cluster/GetTopology", &q.base, &cluster_spec__descriptor, &reply, &err)
               ? NULL
               : (ClusterSpec *)reply;
}

void show_placement(struct cli *cli, const Job *j)
{
    print_mesh(cli, j);
    show_label(cli, "devices");
    printf("%lld%s\n", (long long)j->devices, j->borrowed ? ", borrowed" : "");
    if (j->n_device_names == 0) {
        return;
    }
    struct buf picture = {0};
    ClusterSpec *cluster = fetch_cluster(cli);
    placement_draw(&picture, cluster, (const char *const *)j->device_names, j->n_device_names,
                   INDENT, cli->out_tty ? (size_t)terminal_width() : WIDTH);
    fputs(picture.data ? picture.data : "", stdout);
    buf_free(&picture);
    if (cluster) {
        cluster_spec__free_unpacked(cluster, NULL);
    }
}

void show_use(const struct cli *cli, const Job *j)
{
    char a[HUMAN_MAX], b[HUMAN_MAX];
    if (j->device_seconds > 0 || j->wait_s > 0) {
        show_label(cli, "use");
        printf("%s of device-time, waited %s\n", human_duration(a, j->device_seconds),
               human_duration(b, j->wait_s));
    }
}

/* An attempt's end is known a moment after the job's: when its last process is gone. */
const char *show_attempt_length(const Job *j, const AttemptInfo *a, char h[HUMAN_MAX])
{
    int64_t ended_us = a->ended_us ? a->ended_us : job_has_ended(j->state) ? j->ended_us : 0;
    if (ended_us) {
        return human_duration(h, (double)(ended_us - a->started_us) / 1e6);
    }
    bool works = j->state == JOB_STARTING || j->state == JOB_RUNNING || j->state == JOB_STOPPING;
    return works ? "runs" : "ends";
}

static void add_attempt(struct table *t, const Job *j, const AttemptInfo *a, int64_t now_us)
{
    char h[HUMAN_MAX], raw[32];
    table_cell(t, "", NULL, NULL);
    snprintf(raw, sizeof raw, "%d", a->number);
    table_cell(t, raw, NULL, NULL);
    table_cell(t, human_time(h, a->started_us, now_us), NULL, NULL);
    table_cell(t, show_attempt_length(j, a, h), NULL, NULL);
    table_cell(t, human_duration(h, a->wait_s), NULL, NULL);
    snprintf(raw, sizeof raw, "%lld", (long long)a->start_step);
    table_cell(t, raw, NULL, NULL);
    table_cell(t, human_duration(h, a->device_seconds), NULL, NULL);
    table_cell(t, a->devices, NULL, NULL);
    table_cell(t, a->evicted ? "evicted" : a->borrowed ? "borrowed" : "", NULL, NULL);
}

void show_attempts(const struct cli *cli, const Job *j)
{
    static const char *const names[] = {"",           ">attempt",     "started", ">for", ">waited",
                                        ">from_step", ">device_time", "~on",     "note", NULL};
    if (j->n_attempts == 0) {
        return;
    }
    struct table *t = table_new(names);
    for (size_t i = 0; i < j->n_attempts; i++) {
        add_attempt(t, j, j->attempts[i], clock_wall_us());
    }
    printf("\n");
    table_print(t, cli);
    table_free(t);
}
