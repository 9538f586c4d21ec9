#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "clients/cli/args.h"
#include "clients/cli/human.h"
#include "clients/cli/job.h"
#include "clients/cli/list.h"
#include "clients/cli/table.h"
#include "clients/cli/verbs.h"
#include "proto/text.h"

static void add_row(struct table *t, const Checkpoint *c)
{
    char h[HUMAN_MAX], raw[64];
    const ProtobufCEnumValue *state =
        protobuf_c_enum_descriptor_get_value(&checkpoint_state__descriptor, (int)c->state);
    snprintf(raw, sizeof raw, "%lld", (long long)c->step);
    table_cell(t, raw, NULL, NULL);
    snprintf(raw, sizeof raw, "%d", c->attempt);
    table_cell(t, raw, NULL, NULL);
    table_cell(t, state ? state->name + strlen("CHECKPOINT_") : "?", NULL,
               c->state == CHECKPOINT_COMPLETE ? "\033[32m" : "\033[31m");
    snprintf(raw, sizeof raw, "%.17g", c->loss);
    table_cell(t, c->has_loss ? human_value(h, c->loss) : "-", c->has_loss ? raw : "", NULL);
    snprintf(raw, sizeof raw, "%lld", (long long)c->size_bytes);
    table_cell(t, human_bytes(h, (double)c->size_bytes), raw, NULL);
    snprintf(raw, sizeof raw, "%lld", (long long)c->created_us);
    table_cell(t, human_time(h, c->created_us, clock_wall_us()), raw, NULL);
    table_cell(t, c->path, NULL, NULL);
}

static void print(const struct cli *cli, const ListCheckpointsReply *r, const char *job)
{
    static const char *const names[] = {">step", ">attempt", "state", ">loss",
                                        ">size", "created",  "~path", NULL};
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        list_print(cli, (const ProtobufCMessage *const *)r->checkpoints, r->n_checkpoints);
        return;
    }
    if (r->n_checkpoints == 0 && cli->format == FORMAT_TABLE) {
        printf("job %s has no checkpoints\n", job);
        return;
    }
    struct table *t = table_new(names);
    for (size_t i = 0; i < r->n_checkpoints; i++) {
        add_row(t, r->checkpoints[i]);
    }
    table_print(t, cli);
    table_free(t);
}

static int list(struct cli *cli, const char *job)
{
    ListCheckpointsRequest q = LIST_CHECKPOINTS_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct error err;
    q.job = (char *)(uintptr_t)job;
    q.has_page_size = 1;
    q.page_size = 1000;
    if (cli_call(cli, "Checkpoints/List", &q.base, &list_checkpoints_reply__descriptor, &reply,
                 &err)) {
        return cli_fail(&err);
    }
    print(cli, (const ListCheckpointsReply *)reply, job);
    protobuf_c_message_free_unpacked(reply, NULL);
    return EXIT_DONE;
}

static int run(struct cli *cli, int argc, char **argv)
{
    static const char *const actions[] = {"ls", NULL};
    const struct arg_flag flags[] = {{0}};
    const char *words[2];
    int n = args_parse(flags, argc, argv, words, 2);
    if (n < 0) {
        return EXIT_USAGE;
    }
    if (n == 0 || strcmp(words[0], "ls")) {
        const char *near = n ? text_nearest(words[0], actions) : NULL;
        return cli_usage(argv[0], n ? "there is no \"ckpt %s\"%s" : "what? tandem ckpt ls JOB%s%s",
                         n ? words[0] : "", near ? "; did you mean ls?" : "");
    }
    if (n < 2) {
        return cli_usage(argv[0], JOB_WANTED);
    }
    char id[32];
    return list(cli, job_newest(cli, words[1], id));
}

const struct verb verb_ckpt = {
    .name = "ckpt",
    .args = "ls JOB",
    .help = "list the checkpoints of a job",
    .text = "Newest first, with the folder of each. `tandem generate --model JOB@STEP` tries one\n"
            "out.\n\n"
            "  tandem ckpt ls shakespeare\n",
    .run = run,
};
