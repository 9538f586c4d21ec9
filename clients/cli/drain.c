#include <stdint.h>
#include <stdio.h>

#include "clients/cli/drain_change.h"
#include "clients/cli/verbs.h"

/* How many of the target's devices the job has that holds the ith; 0: it was counted before. */
static size_t count_of_job(const struct drain_target *t, const NodeInfo *node, size_t i)
{
    size_t num = 0;
    for (size_t k = 0; k < node->n_devices; k++) {
        const DeviceInfo *d = node->devices[k];
        if (!drain_is_target(t, d) || d->job_id != node->devices[i]->job_id) {
            continue;
        }
        if (k < i) {
            return 0;
        }
        num++;
    }
    return num;
}

static void print(const struct drain_target *t, const NodeInfo *node, bool let_finish)
{
    char name[DRAIN_NODE_MAX + 16];
    size_t num = 0, used = 0;
    const char *reason = NULL;
    drain_name(t, name, sizeof name);
    for (size_t i = 0; i < node->n_devices; i++) {
        if (drain_is_target(t, node->devices[i])) {
            num++;
            reason = node->devices[i]->reason;
        }
    }
    bool has_reason = reason && reason[0];
    printf("%s is drained%s%s%s: %zu device%s that no new job gets\n", name, has_reason ? " (" : "",
           has_reason ? reason : "", has_reason ? ")" : "", num, num == 1 ? "" : "s");
    for (size_t i = 0; i < node->n_devices; i++) {
        const DeviceInfo *d = node->devices[i];
        size_t of_job = d->job_id > 0 && drain_is_target(t, d) ? count_of_job(t, node, i) : 0;
        if (of_job) {
            used += of_job;
            printf("job %lld, on %zu of them, %s\n", (long long)d->job_id, of_job,
                   let_finish ? "runs on to its end"
                              : "saves at its next step and goes on elsewhere");
        }
    }
    if (used) {
        printf("%zu %s still used; `tandem nodes %s` shows when they are free\n", used,
               used == 1 ? "is" : "are", t->node);
    }
    printf("`tandem undrain %s` gives %s back\n", name, num == 1 ? "it" : "them");
}

static int run(struct cli *cli, int argc, char **argv)
{
    const char *reason = NULL;
    bool let_finish = false;
    const struct arg_flag flags[] = {{"reason", 'r', ARG_TEXT, &reason, NULL},
                                     {"let-finish", 0, ARG_BOOL, &let_finish, NULL},
                                     {0}};
    struct drain_target t;
    if (drain_args(flags, argc, argv, &t) != EXIT_DONE) {
        return EXIT_USAGE;
    }
    DrainRequest q = DRAIN_REQUEST__INIT;
    q.reason = (char *)(uintptr_t)reason;
    q.has_let_finish = let_finish;
    q.let_finish = let_finish;
    ClusterSpec *reply;
    const NodeInfo *node;
    int rc = drain_ask(cli, "Cluster/Drain", &t, &q, &reply, &node);
    if (rc != EXIT_DONE) {
        return rc;
    }
    if (node && (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML)) {
        cli_print_message(cli, &node->base);
    } else if (node) {
        print(&t, node, let_finish);
    }
    cluster_spec__free_unpacked(reply, NULL);
    return EXIT_DONE;
}

const struct verb verb_drain = {
    .name = "drain",
    .args = "NODE[:DEVICE] [--reason TEXT] [--let-finish]",
    .help = "take a node or a device out of use",
    .text = "  -r, --reason TEXT  why; `tandem nodes` and jobs that wait for it show it\n"
            "  --let-finish       jobs on it run on to their end\n\n"
            "No new job gets it, until `tandem undrain`; also after a restart of the server. A job "
            "on it\n"
            "saves a checkpoint at its next step, gives all its devices back and starts again "
            "elsewhere as\n"
            "soon as there is room; it loses no step, and its place in the queue neither. What has "
            "not\n"
            "stopped within the server's grace (scheduler.grace_s) is killed and goes on from its "
            "last\n"
            "checkpoint. The node can be taken away once `tandem nodes NODE` shows no job on it.\n"
            "Draining what is drained changes the reason, if one is given. For admins.\n\n"
            "  tandem drain alpha:2 --reason 'ECC errors'\n"
            "  tandem drain alpha --let-finish --reason 'new disks on Monday'\n",
    .run = run,
};
