/* tandem-rank that a test can hold still, so that its run doesn't end before it was disturbed:
 * linked with --wrap=rank_run,--wrap=report_step. A tag of the job says where:
 *
 *   hold=A.S   in attempt A, once step S is reported, until the job's folder has a file go-A.S in
 *              it or tandem-node sends a command; from when rank 0 is held on, held-A.S is there
 *   hold=A.+S  the same, S steps after those that the attempt goes on from */
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

static bool has_tag(const char *name, const char *value)
{
    const JobSpec *spec = start->start->plan->spec;
    char want[64];
    snprintf(want, sizeof want, "%s=%s", name, value);
    for (size_t i = 0; i < spec->n_tags; i++) {
        if (strcmp(spec->tags[i], want) == 0) {
            return true;
        }
    }
    return false;
}

static void hold(const char *moment)
{
    char path[4096];
    struct pollfd command = {.fd = LINK_FD, .events = POLLIN};
    if (start->rank == 0) {
        snprintf(path, sizeof path, "%s/held-%s", start->job_dir, moment);
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    }
    snprintf(path, sizeof path, "%s/go-%s", start->job_dir, moment);
    while (!fs_exists(path) && poll(&command, 1, 2) <= 0) {
    }
}

int __wrap_report_step(struct report *r, int64_t step, const struct step_result *result,
                       struct error *err)
{
    char at[32], after[32];
    if (__real_report_step(r, step, result, err) != 0) {
        return -1;
    }
    snprintf(at, sizeof at, "%d.%lld", (int)start->attempt, (long long)step);
    snprintf(after, sizeof after, "%d.+%lld", (int)start->attempt,
             (long long)(step - start->start->resume_step));
    if (has_tag("hold", at)) {
        hold(at);
    }
    if (has_tag("hold", after)) {
        hold(after);
    }
    return 0;
}
