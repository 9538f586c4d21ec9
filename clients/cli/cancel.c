#include "clients/cli/job.h"
#include "clients/cli/verbs.h"

static int run(struct cli *cli, int argc, char **argv)
{
    return job_action(cli, argc, argv, "Jobs/Cancel");
}

const struct verb verb_cancel = {
    .name = "cancel",
    .args = "JOB",
    .help = "stop a job for good",
    .text = "Ranks are asked to stop, then killed; the devices are free afterwards. Nothing is\n"
            "saved, checkpoints stay: `tandem resume` can go on later from the newest of them.\n"
            "`tandem pause` saves one first. Cancelling a job that has ended changes nothing.\n"
            "\n"
            "  tandem cancel shakespeare\n",
    .run = run,
};
