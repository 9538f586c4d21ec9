#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "clients/cli/args.h"
#include "clients/cli/job.h"
#include "clients/cli/verbs.h"

/* The words of a job file, or a number. */
static bool read_priority(const char *text, int64_t *out)
{
    static const struct {
        const char *word;
        int64_t value;
    } words[] = {{"low", 250}, {"normal", 500}, {"high", 750}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i].word) == 0) {
            *out = words[i].value;
            return true;
        }
    }
    return args_read_int(text, out) && *out <= 1000;
}

static int run(struct cli *cli, int argc, char **argv)
{
    const struct arg_flag flags[] = {{0}};
    const char *words[2];
    int64_t priority;
    int n = args_parse(flags, argc, argv, words, 2);
    if (n < 0) {
        return EXIT_USAGE;
    }
    if (n < 2) {
        return cli_usage(argv[0],
                         n == 0 ? JOB_WANTED : "which priority? low, normal, high, or 0 to 1000");
    }
    if (!read_priority(words[1], &priority)) {
        return cli_usage(argv[0], "%s: expected low, normal, high, or a number from 0 to 1000",
                         words[1]);
    }
    SetPriorityRequest q = SET_PRIORITY_REQUEST__INIT;
    q.job = (char *)(uintptr_t)words[0];
    q.has_priority = 1;
    q.priority = (int32_t)priority;
    ProtobufCMessage *reply;
    struct error err;
    if (cli_call(cli, "Jobs/SetPriority", &q.base, &job__descriptor, &reply, &err)) {
        return cli_fail(&err);
    }
    const Job *job = (const Job *)reply;
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        cli_print_message(cli, reply);
    } else {
        printf("job %lld (%s) %s, priority %d\n", (long long)job->id, job->name ? job->name : "",
               job_state_word(job->state), job->priority);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return EXIT_DONE;
}

const struct verb verb_priority = {
    .name = "priority",
    .args = "JOB P",
    .help = "change a job's place in the queue",
    .text = "P is low (250), normal (500), high (750) or a number from 0 to 1000; higher starts "
            "first.\nA job that runs runs on.\n\n"
            "  tandem priority 7 high\n",
    .run = run,
};
