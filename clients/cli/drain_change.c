#include "clients/cli/drain_change.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int read_target(const char *verb, const char *word, struct drain_target *out)
{
    const char *colon = strrchr(word, ':');
    size_t len = colon ? (size_t)(colon - word) : strlen(word);
    int64_t device = -1;
    if (len == 0 || len >= sizeof out->node) {
        return cli_usage(verb, "%.80s: expected NODE or NODE:DEVICE, as `tandem nodes` shows them",
                         word);
    }
    if (colon && (!args_read_int(colon + 1, &device) || device > INT32_MAX)) {
        return cli_usage(verb, "%.80s: expected the device's number behind the colon", word);
    }
    memcpy(out->node, word, len);
    out->node[len] = 0;
    out->device = (int32_t)device;
    return EXIT_DONE;
}

int drain_args(const struct arg_flag *flags, int argc, char **argv, struct drain_target *out)
{
    const char *word;
    int n = args_parse(flags, argc, argv, &word, 1);
    if (n < 0) {
        return EXIT_USAGE;
    }
    if (n == 0) {
        return cli_usage(argv[0], "which node or device? `tandem nodes` lists them");
    }
    return read_target(argv[0], word, out);
}

void drain_name(const struct drain_target *t, char *out, size_t size)
{
    if (t->device < 0) {
        snprintf(out, size, "%s", t->node);
    } else {
        snprintf(out, size, "%s:%d", t->node, t->device);
    }
}

bool drain_is_target(const struct drain_target *t, const DeviceInfo *d)
{
    return t->device < 0 || d->index == t->device;
}

int drain_ask(struct cli *cli, const char *method, const struct drain_target *t, DrainRequest *q,
              ClusterSpec **out, const NodeInfo **node)
{
    ProtobufCMessage *reply;
    struct error err;
    q->node = (char *)(uintptr_t)t->node;
    q->has_device = t->device >= 0;
    q->device = t->device;
    if (cli_call(cli, method, &q->base, &cluster_spec__descriptor, &reply, &err) != 0) {
        return cli_fail(&err);
    }
    *out = (ClusterSpec *)reply;
    *node = (*out)->n_nodes ? (*out)->nodes[0] : NULL;
    return EXIT_DONE;
}
