/* What drain and undrain share: NODE or NODE:DEV as a request, and the node as it is afterwards. */
#ifndef TANDEM_CLIENTS_CLI_DRAIN_CHANGE_H
#define TANDEM_CLIENTS_CLI_DRAIN_CHANGE_H

#include "clients/cli/args.h"
#include "clients/cli/cli.h"

#define DRAIN_NODE_MAX 65

struct drain_target {
    char node[DRAIN_NODE_MAX];
    int32_t device; /* -1 = all of the node */
};

/* The verb's flags, and the one word that says what it is about. EXIT_USAGE after a sentence. */
int drain_args(const struct arg_flag *flags, int argc, char **argv, struct drain_target *out);
/* "alpha:2" */
void drain_name(const struct drain_target *t, char *out, size_t size);
/* Is the device of a reply one of the target's? */
bool drain_is_target(const struct drain_target *t, const DeviceInfo *d);
/* Asks "Cluster/Drain" or "Cluster/Undrain". EXIT_DONE: *node is the node as it is then, of *reply
 * (cluster_spec__free_unpacked); NULL: the server's cluster doesn't have it. */
int drain_ask(struct cli *cli, const char *method, const struct drain_target *t, DrainRequest *q,
              ClusterSpec **reply, const NodeInfo **node);

#endif
