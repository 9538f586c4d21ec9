#include "clients/cli/job.h"
#include "clients/cli/verbs.h"

static int run(struct cli *cli, int argc, char **argv)
{
    return job_action(cli, argc, argv, "Jobs/Hold");
}

const struct verb verb_hold = {
    .name = "hold",
    .args = "JOB",
    .help = "keep a waiting job out of the queue",
    .text = "It waits until `tandem release`; a job that runs is paused by `tandem pause`.\n\n"
            "  tandem hold 7\n",
    .run = run,
};
