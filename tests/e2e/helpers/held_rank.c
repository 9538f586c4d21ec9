/* tandem-rank that a test can hold still, so that its run doesn't end before it was disturbed:
 * linked with --wrap=rank_run,--wrap=report_step. A tag of the job says where:
 *
 *   hold=A.S   in attempt A, once step S is reported, until the job's folder has a file go-A.S in
 *              it or tandem-node sends a command; from when rank 0 is held on, held-A.S is there */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/rank/rank.h"
#include "runtime/rank/report.h"

#define LINK_FD 3

int __real_rank_run(const struct rank_options *options, bool *retryable, struct error *err);
int __wrap_rank_run(const struct rank_options *options, bool *retryable, struct error *err);
int __real_report_step(struct report *r, int64_t step, const struct step_result *result,
                       struct error *err);
int __wrap_report_step(struct report *r, int64_t step, const struct step_result *result,
                       struct error *err);

static const RankStart *start; /* of the one rank of this process */

int __wrap_rank_run(const struct rank_options *options, bool *retryable, struct error *err)
{
    start = options->start;
    return __real_rank_run(options, retryable, err);
}

static bool is_to_hold(int64_t step)
{
    const JobSpec *spec = start->start->plan->spec;
    char want[48];
    snprintf(want, sizeof want, "hold=%d.%lld", (int)start->attempt, (long long)step);
    for (size_t i = 0; i < spec->n_tags; i++)
        if (strcmp(spec->tags[i], want) == 0)
            return true;
    return false;
}

static void hold(int64_t step)
{
    char path[4096];
    struct pollfd command = {.fd = LINK_FD, .events = POLLIN};
    if (start->rank == 0) {
        snprintf(path, sizeof path, "%s/held-%d.%lld", start->job_dir, (int)start->attempt,
                 (long long)step);
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    }
    snprintf(path, sizeof path, "%s/go-%d.%lld", start->job_dir, (int)start->attempt,
             (long long)step);
    while (!fs_exists(path) && poll(&command, 1, 2) <= 0) {
    }
}

int __wrap_report_step(struct report *r, int64_t step, const struct step_result *result,
                       struct error *err)
{
    int rc = __real_report_step(r, step, result, err);
    if (rc == 0 && is_to_hold(step))
        hold(step);
    return rc;
}
