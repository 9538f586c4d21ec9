#include "clients/cli/job.h"
#include "clients/cli/verbs.h"

static int run(struct cli *cli, int argc, char **argv)
{
    return job_action(cli, argc, argv, "Jobs/Resume");
}

const struct verb verb_resume = {
    .name = "resume",
    .args = "JOB",
    .help = "queue a paused, failed or cancelled job again",
    .text = "It goes on from its newest checkpoint, or from the start if there is none.\n"
            "\n"
            "  tandem resume 7\n",
    .run = run,
};
