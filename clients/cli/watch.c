#include "clients/cli/args.h"
#include "clients/cli/follow.h"
#include "clients/cli/job.h"
#include "clients/cli/verbs.h"

static int run(struct cli *cli, int argc, char **argv)
{
    const struct arg_flag flags[] = {{0}};
    const char *job;
    if (job_parse(flags, argc, argv, &job)) {
        return EXIT_USAGE;
    }
    char id[32];
    return follow_job(cli, job_newest_to_follow(cli, job, id), false);
}

const struct verb verb_watch = {
    .name = "watch",
    .args = "JOB",
    .help = "follow a job to its end",
    .text =
        "Shows progress, loss, gradient norm, speed and the time that is left, and each change of\n"
        "state. It follows the job through restarts and waits while the server is away. Ctrl-C\n"
        "detaches; it never stops the job.\n\n"
        "Exit code: 0 the job succeeded, 3 it failed or was cancelled, 4 no server, 130 after\n"
        "Ctrl-C (so that what follows `&&` isn't run).\n\n"
        "  tandem watch shakespeare\n",
    .run = run,
    .text_only = true,
};
