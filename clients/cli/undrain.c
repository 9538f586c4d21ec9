#include <stdio.h>

#include "clients/cli/drain_change.h"
#include "clients/cli/verbs.h"

static void print(const struct drain_target *t, const NodeInfo *node)
{
    char name[DRAIN_NODE_MAX + 16];
    size_t num = 0, out_of_use = 0;
    drain_name(t, name, sizeof name);
    for (size_t i = 0; i < node->n_devices; i++) {
        const DeviceInfo *d = node->devices[i];
        num += drain_is_target(t, d);
        out_of_use += drain_is_target(t, d) && d->drained;
    }
    printf("%s takes jobs: %zu of %zu device%s\n", name, num - out_of_use, num,
           num == 1 ? "" : "s");
    for (size_t i = 0; i < node->n_devices; i++) {
        const DeviceInfo *d = node->devices[i];
        if (drain_is_target(t, d) && d->drained) {
            printf("%s:%d stays out of use: %s\n", t->node, d->index, d->reason ? d->reason : "");
        }
    }
}

static int run(struct cli *cli, int argc, char **argv)
{
    const struct arg_flag flags[] = {{0}};
    struct drain_target t;
    if (drain_args(flags, argc, argv, &t) != EXIT_DONE) {
        return EXIT_USAGE;
    }
    DrainRequest q = DRAIN_REQUEST__INIT;
    ClusterSpec *reply;
    const NodeInfo *node;
    int rc = drain_ask(cli, "Cluster/Undrain", &t, &q, &reply, &node);
    if (rc != EXIT_DONE) {
        return rc;
    }
    if (node && (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML)) {
        cli_print_message(cli, &node->base);
    } else if (node) {
        print(&t, node);
    } else {
        printf("%s is forgotten: the cluster has no such node any more\n", t.node);
    }
    cluster_spec__free_unpacked(reply, NULL);
    return EXIT_DONE;
}

const struct verb verb_undrain = {
    .name = "undrain",
    .args = "NODE[:DEVICE]",
    .help = "put a drained node or device into use again",
    .text = "A node comes back with all of its devices, those too that were drained one by one. "
            "Jobs that\n"
            "wait may start on it at once. What isn't drained stays as it is. For admins.\n\n"
            "  tandem undrain alpha:2\n"
            "  tandem undrain alpha\n",
    .run = run,
};
