#include "clients/cli/args.h"
#include "clients/cli/verbs.h"

static int run(struct cli *cli, int argc, char **argv)
{
    const struct arg_flag flags[] = {{0}};
    const char *ref;
    int n = args_parse(flags, argc, argv, &ref, 1);
    if (n < 0) {
        return EXIT_USAGE;
    }
    if (n == 0) {
        return cli_usage(argv[0], "which job? Give its number or its name");
    }
    JobRef q = JOB_REF__INIT;
    ProtobufCMessage *reply;
    struct error err;
    q.job = (char *)(uintptr_t)ref;
    if (cli_call(cli, "Jobs/Why", &q.base, &why_reply__descriptor, &reply, &err)) {
        return cli_fail(&err);
    }
    const WhyReply *w = (const WhyReply *)reply;
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        cli_print_message(cli, reply);
    } else {
        for (size_t i = 0; i < w->n_reasons; i++) {
            printf("%s\n", w->reasons[i]);
        }
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return EXIT_DONE;
}

const struct verb verb_why = {
    .name = "why",
    .args = "JOB",
    .help = "say why a job is in the state it is in",
    .text = "For a queued job: what it waits for. For one that ended: what ended it.\n\n"
            "  tandem why 7\n",
    .run = run,
};
