/* tandem-rank: one rank as a process. tandem-node starts it with a socket on descriptor 3, the
 * gang's shared segment on descriptor 4 (where there is more than one rank), and reads its log from
 * stderr. It leaves with 0 when it has said RankDone, with 1 when it has said RankFault.
 *
 * Threads: main (the rank: everything but what follows), one each that sums gradients, gathers
 * weights and writes checkpoints, the kernels' workers, and on GPUs NCCL's watchdog. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "base/log.h"
#include "runtime/link/link.h"
#include "runtime/rank/rank.h"

#define LINK_FD 3
#define SEGMENT_FD 4
#define START_WAIT_MS 60000
/* For a rank that is stuck in itself. Ranks that die or are stopped are found by tandem-node within
 * seconds; a slow one (a large save, more ranks than cores) must not be taken for stuck. */
#define COLLECTIVE_DEADLINE_MS 300000

/* --rank and --job say in `ps` whose process this is; the truth comes over the link. */
static int parse_args(int argc, char **argv, int *rank)
{
    static const struct option options[] = {
        {"rank", required_argument, NULL, 'r'},
        {"job", required_argument, NULL, 'j'},
        {NULL, 0, NULL, 0},
    };
    int c;
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'r')
            *rank = atoi(optarg);
        else if (c != 'j')
            return -1;
    }
    return 0;
}

static int wait_for_start(struct link *link, RankDown **out, struct error *err)
{
    if (link_poll(link, START_WAIT_MS, out, err) != 0)
        return -1;
    if (*out == NULL)
        return error_set(err, ERR_DEADLINE_EXCEEDED, "no start within %d s", START_WAIT_MS / 1000);
    const RankDown *down = *out;
    if (down->body_case != RANK_DOWN__BODY_START || down->start->start == NULL ||
        down->start->start->plan == NULL || down->start->job_dir == NULL) {
        rank_down__free_unpacked(*out, NULL);
        return error_set(err, ERR_INVALID_ARGUMENT, "the first command is not a whole start");
    }
    return 0;
}

static int run(struct link *link, struct error *err)
{
    RankDown *down;
    if (wait_for_start(link, &down, err) != 0)
        return -1;
    struct rank_options options = {
        .start = down->start,
        .link = link,
        .segment_fd = down->start->start->plan->mesh->num_ranks > 1 ? SEGMENT_FD : -1,
        .deadline_ms = COLLECTIVE_DEADLINE_MS,
    };
    bool retryable;
    int rc = rank_run(&options, &retryable, err);
    rank_down__free_unpacked(down, NULL);
    return rc;
}

int main(int argc, char **argv)
{
    static char name[32];
    int rank = 0;
    if (parse_args(argc, argv, &rank) != 0) {
        fprintf(stderr, "usage: tandem-rank --rank R --job J (started by tandem-node)\n");
        return 2;
    }
    snprintf(name, sizeof(name), "rank %d", rank);
    log_init(name);
    /* Devices are numbered as NVML does it, from which the plan has their numbers: all of them. */
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    /* A rank never outlives its parent. If the parent is gone already, the link is closed. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error that has a name */
    struct error err = {0};
    struct link *link;
    if (link_new(&link, LINK_FD, &err) != 0) {
        log_error("%s", err.text);
        return 1;
    }
    int rc = run(link, &err);
    if (rc != 0)
        log_error("%s", err.text);
    link_free(link);
    return rc == 0 ? 0 : 1;
}
