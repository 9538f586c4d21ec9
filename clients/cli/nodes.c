#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/args.h"
#include "clients/cli/human.h"
#include "clients/cli/list.h"
#include "clients/cli/local_probe.h"
#include "clients/cli/node_rows.h"
#include "clients/cli/verbs.h"
#include "plan/cluster.h"
#include "plan/cluster_host.h"
#include "proto/text.h"

#define WORDS_MAX 64

/* What is asked for. */
struct choice {
    const char *names[WORDS_MAX];
    int num_names;
    bool devices, host;
    const char *cluster_file;
};

static int unknown_node(const ClusterSpec *c, const char *name)
{
    const char **names = calloc(c->n_nodes + 1, sizeof *names);
    if (!names) {
        abort();
    }
    for (size_t i = 0; i < c->n_nodes; i++) {
        names[i] = c->nodes[i]->name ? c->nodes[i]->name : "";
    }
    const char *near = text_nearest(name, names);
    struct error err;
    error_set(&err, ERR_NOT_FOUND, "no node is called %.64s%s%s%s", name,
              near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    free(names);
    return cli_fail(&err);
}

/* The nodes that are wanted, in the cluster's order; *num of them. NULL after a sentence. */
static const NodeInfo **choose(const ClusterSpec *c, const struct choice *choice, size_t *num,
                               int *rc)
{
    const NodeInfo **nodes = calloc(c->n_nodes + 1, sizeof *nodes);
    bool found[WORDS_MAX] = {false};
    if (!nodes) {
        abort();
    }
    *num = 0;
    for (size_t i = 0; i < c->n_nodes; i++) {
        bool wanted = choice->num_names == 0;
        for (int k = 0; k < choice->num_names; k++) {
            if (c->nodes[i]->name && strcmp(c->nodes[i]->name, choice->names[k]) == 0) {
                wanted = found[k] = true;
            }
        }
        if (wanted) {
            nodes[(*num)++] = c->nodes[i];
        }
    }
    for (int k = 0; k < choice->num_names; k++) {
        if (!found[k]) {
            *rc = unknown_node(c, choice->names[k]);
            free(nodes);
            return NULL;
        }
    }
    return nodes;
}

static void print_host(const NodeInfo *n)
{
    char h[HUMAN_MAX];
    printf("%s: %zu device%s on %d core%s", n->name ? n->name : "", n->n_devices,
           n->n_devices == 1 ? "" : "s", n->cores, n->cores == 1 ? "" : "s");
    if (n->mem_bytes > 0) {
        printf(", %s", human_bytes(h, (double)n->mem_bytes));
    }
    if (n->nics > 0) {
        printf(", %d network card%s", n->nics, n->nics == 1 ? "" : "s");
    }
    if (n->nic_bytes_per_s > 0) {
        printf(" of %s/s", human_bytes(h, n->nic_bytes_per_s));
    }
    if (n->cpu_model && n->cpu_model[0]) {
        printf(", %s", n->cpu_model);
    }
    printf("\n");
}

/* "6 of 16 devices are free, 2 drained" */
static void print_sum(const NodeInfo *const *nodes, size_t num)
{
    struct node_counts sum = {0};
    for (size_t i = 0; i < num; i++) {
        node_rows_count(nodes[i], &sum);
    }
    printf("%" PRId64 " of %" PRId64 " devices are free", sum.free, sum.devices);
    if (sum.claimed) {
        printf(", %" PRId64 " claimed for jobs that wait", sum.claimed);
    }
    if (sum.drained) {
        printf(", %" PRId64 " drained", sum.drained);
    }
    printf("\n");
}

static void print(const struct cli *cli, const ClusterSpec *c, const struct choice *choice,
                  const NodeInfo *const *nodes, size_t num)
{
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        list_print(cli, (const ProtobufCMessage *const *)nodes, num);
        return;
    }
    bool devices = choice->devices || choice->num_names > 0 || cli->format == FORMAT_CSV;
    struct table *t = devices ? node_rows_devices(nodes, num) : node_rows_new(c);
    table_print(t, cli);
    table_free(t);
    if (cli->format == FORMAT_TABLE) {
        printf("\n");
        for (size_t i = 0; i < num && (choice->num_names > 0 || num == 1); i++) {
            print_host(nodes[i]);
        }
        print_sum(nodes, num);
    }
}

static int show(const struct cli *cli, const ClusterSpec *c, const struct choice *choice)
{
    size_t num;
    int rc = EXIT_DONE;
    const NodeInfo **nodes = choose(c, choice, &num, &rc);
    if (nodes) {
        print(cli, c, choice, nodes, num);
        free(nodes);
    }
    return rc;
}

/* ---- this host ---- */

/* What one makes of a host without GPUs: a CPU device a core. */
static void add_cpus(NodeInfo *host)
{
    host->devices = calloc((size_t)host->cores + 1, sizeof(DeviceInfo *));
    ASSERT(host->devices);
    for (int32_t i = 0; i < host->cores; i++) {
        DeviceInfo *d = malloc(sizeof *d);
        ASSERT(d);
        device_info__init(d);
        d->has_index = 1;
        d->index = i;
        host->devices[host->n_devices++] = d;
    }
}

static void say(void *where, const char *words)
{
    fprintf(where, "%s\n", words);
}

/* Notes and differences go to stderr, so that -o yaml stays a piece of a cluster file. */
static int show_host(const struct cli *cli, const struct choice *choice)
{
    ProbeReply *found;
    ClusterSpec *told = NULL;
    struct error err;
    if (choice->cluster_file && cluster_read(choice->cluster_file, &told, &err) != 0) {
        return cli_fail(&err);
    }
    int rc = local_probe_host(&found, &err) == 0 ? EXIT_DONE : cli_fail(&err);
    if (rc == EXIT_DONE) {
        ClusterSpec c = CLUSTER_SPEC__INIT;
        NodeInfo *host = found->host;
        for (size_t i = 0; i < found->n_notes; i++) {
            say(stderr, found->notes[i]);
        }
        if (told) {
            cluster_host_compare(told, host, say, stderr);
        }
        if (host->n_devices == 0) {
            add_cpus(host);
        }
        c.nodes = &host;
        c.n_nodes = 1;
        rc = show(cli, &c, choice);
        probe_reply__free_unpacked(found, NULL);
    }
    if (told) {
        cluster_spec__free_unpacked(told, NULL);
    }
    return rc;
}

static int ask(struct cli *cli, const struct choice *choice, ClusterSpec **out, struct error *err)
{
    if (choice->cluster_file) {
        return cluster_read(choice->cluster_file, out, err);
    }
    ListNodesRequest q = LIST_NODES_REQUEST__INIT;
    ProtobufCMessage *reply;
    if (cli_call(cli, "Cluster/ListNodes", &q.base, &cluster_spec__descriptor, &reply, err) != 0) {
        return -1;
    }
    *out = (ClusterSpec *)reply;
    return 0;
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct choice choice = {0};
    const struct arg_flag flags[] = {{"devices", 'd', ARG_BOOL, &choice.devices, NULL},
                                     {"cluster", 0, ARG_TEXT, &choice.cluster_file, NULL},
                                     {"host", 0, ARG_BOOL, &choice.host, NULL},
                                     {0}};
    choice.num_names = args_parse(flags, argc, argv, choice.names, WORDS_MAX);
    if (choice.num_names < 0) {
        return EXIT_USAGE;
    }
    ClusterSpec *c;
    struct error err;
    if (choice.host) {
        return show_host(cli, &choice);
    }
    if (ask(cli, &choice, &c, &err) != 0) {
        return cli_fail(&err);
    }
    int rc = show(cli, c, &choice);
    cluster_spec__free_unpacked(c, NULL);
    return rc;
}

const struct verb verb_nodes = {
    .name = "nodes",
    .args = "[NODE...] [--devices] [--cluster FILE] [--host]",
    .help = "list nodes and devices, and who uses them",
    .text =
        "  NODE             its devices, each in a line\n"
        "  -d, --devices    the devices of all nodes\n"
        "  --cluster FILE   of a cluster file, without a server\n"
        "  --host           of this host, as it is found; with --cluster FILE, too: where it is\n"
        "                   not as the file says\n\n"
        "Nodes that are alike and follow each other by number are one line. -o csv lists devices.\n"
        "Exits with 4 while no server answers, so a script can wait for it:\n\n"
        "  until tandem nodes > /dev/null; do sleep 1; done\n",
    .run = run,
};
