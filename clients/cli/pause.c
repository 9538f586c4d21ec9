#include "clients/cli/job.h"
#include "clients/cli/verbs.h"

static int run(struct cli *cli, int argc, char **argv)
{
    return job_action(cli, argc, argv, "Jobs/Pause");
}

const struct verb verb_pause = {
    .name = "pause",
    .args = "JOB",
    .help = "checkpoint a job, then give its devices back",
    .text = "The job saves a checkpoint at its next step and leaves its devices to others. No step "
            "is lost:\n"
            "`tandem resume` goes on from there.\n"
            "\n"
            "  tandem pause 7\n",
    .run = run,
};
