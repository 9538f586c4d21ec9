#include "clients/cli/job.h"
#include "clients/cli/verbs.h"

static int run(struct cli *cli, int argc, char **argv)
{
    return job_action(cli, argc, argv, "Jobs/Release");
}

const struct verb verb_release = {
    .name = "release",
    .args = "JOB",
    .help = "put a held job into the queue",
    .text = "It queues by its priority and the time it was submitted.\n\n"
            "  tandem release 7\n",
    .run = run,
};
