#include "clients/cli/args.h"
#include "clients/cli/human.h"
#include "clients/cli/list.h"
#include "clients/cli/table.h"
#include "clients/cli/verbs.h"

static void add_device(struct table *t, const NodeInfo *n, const DeviceInfo *d)
{
    char h[HUMAN_MAX], raw[64], use[64];
    snprintf(raw, sizeof raw, "%s:%d", n->name ? n->name : "", d->index);
    table_cell(t, raw, NULL, NULL);
    table_cell(t, d->type, NULL, NULL);
    if (d->drained) {
        snprintf(use, sizeof use, "drained");
    } else if (d->job_id < 0) { /* another tenant's, that isn't to be told */
        snprintf(use, sizeof use, "in use");
    } else if (d->job_id) {
        snprintf(use, sizeof use, "job %lld", (long long)d->job_id);
    } else {
        snprintf(use, sizeof use, "free");
    }
    table_cell(t, use, NULL, d->drained ? "\033[31m" : d->job_id ? "\033[36m" : "\033[32m");
    snprintf(raw, sizeof raw, "%lld", (long long)d->mem_bytes);
    table_cell(t, d->mem_bytes ? human_bytes(h, (double)d->mem_bytes) : "-", raw, NULL);
    snprintf(raw, sizeof raw, "%.17g", d->peak_flops_fp32);
    char peak[HUMAN_MAX] = "-";
    if (d->peak_flops_fp32 > 0) {
        bool tera = d->peak_flops_fp32 >= 1e12;
        snprintf(peak, sizeof peak, "%.1f %cFLOP/s", d->peak_flops_fp32 / (tera ? 1e12 : 1e9),
                 tera ? 'T' : 'G');
    }
    table_cell(t, peak, raw, NULL);
    table_cell(t, d->domain, NULL, NULL);
    table_cell(t, d->reason, NULL, NULL);
}

static void print(const struct cli *cli, const ClusterSpec *c)
{
    static const char *const names[] = {"device",     "type",   "use",     ">memory",
                                        ">peak_fp32", "domain", "~reason", NULL};
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        list_print(cli, (const ProtobufCMessage *const *)c->nodes, c->n_nodes);
        return;
    }
    struct table *t = table_new(names);
    size_t free_devices = 0;
    for (size_t i = 0; i < c->n_nodes; i++) {
        for (size_t k = 0; k < c->nodes[i]->n_devices; k++) {
            const DeviceInfo *d = c->nodes[i]->devices[k];
            add_device(t, c->nodes[i], d);
            free_devices += !d->job_id && !d->drained;
        }
    }
    table_print(t, cli);
    if (cli->format == FORMAT_TABLE) {
        for (size_t i = 0; i < c->n_nodes; i++) {
            const NodeInfo *n = c->nodes[i];
            char h[HUMAN_MAX];
            printf("%s%s: %zu devices on %d core%s, %s%s%s\n", i ? "" : "\n",
                   n->name ? n->name : "", n->n_devices, n->cores, n->cores == 1 ? "" : "s",
                   human_bytes(h, (double)n->mem_bytes),
                   n->cpu_model && n->cpu_model[0] ? ", " : "", n->cpu_model ? n->cpu_model : "");
        }
        printf("%zu of %zu devices are free\n", free_devices, table_rows(t));
    }
    table_free(t);
}

static int run(struct cli *cli, int argc, char **argv)
{
    const struct arg_flag flags[] = {{0}};
    if (args_parse(flags, argc, argv, NULL, 0) < 0) {
        return EXIT_USAGE;
    }
    ListNodesRequest q = LIST_NODES_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct error err;
    if (cli_call(cli, "Cluster/ListNodes", &q.base, &cluster_spec__descriptor, &reply, &err)) {
        return cli_fail(&err);
    }
    print(cli, (const ClusterSpec *)reply);
    protobuf_c_message_free_unpacked(reply, NULL);
    return EXIT_DONE;
}

const struct verb verb_nodes = {
    .name = "nodes",
    .help = "list nodes and devices, and who uses them",
    .text = "Exits with 4 while no server answers, so a script can wait for it:\n\n"
            "  until tandem nodes > /dev/null; do sleep 1; done\n",
    .run = run,
};
