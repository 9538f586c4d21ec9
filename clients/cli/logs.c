#include <string.h>

#include "base/clock.h"
#include "clients/cli/args.h"
#include "clients/cli/follow.h"
#include "clients/cli/terminal.h"
#include "clients/cli/verbs.h"

enum { WAIT_MS = 200, RETRY_MS = 500, AWAY_LIMIT_MS = 600000, MAX_RANKS = 4096 };

/* What was printed already, so that a reconnection doesn't print it again. */
struct seen {
    int32_t attempt;
    int64_t offsets[MAX_RANKS + 1]; /* by rank + 1 */
    bool any;
};

static void print_piece(struct seen *seen, const LogsReply *r)
{
    if (r->attempt != seen->attempt) {
        memset(seen->offsets, 0, sizeof seen->offsets);
        seen->attempt = r->attempt;
    }
    seen->any = true;
    if (r->rank >= -1 && r->rank < MAX_RANKS) {
        int64_t *offset = &seen->offsets[r->rank + 1];
        if (r->next_offset <= *offset) {
            return;
        }
        *offset = r->next_offset;
    }
    fwrite(r->data.data, 1, r->data.len, stdout);
    fflush(stdout);
}

/* 0 = the stream ended (or Ctrl-C), -1 = err. */
static int read_stream(struct cli *cli, const LogsRequest *q, struct seen *seen, struct error *err)
{
    struct rpc_channel *channel;
    struct rpc_stream *s;
    if (cli_channel(cli, &channel, err) ||
        rpc_stream_open(channel, "/tandem.v1.Jobs/Logs", &q->base, &s, err)) {
        return -1;
    }
    int r = 1;
    while (r > 0 && !terminal_interrupted()) {
        ProtobufCMessage *m;
        r = rpc_stream_recv(s, &logs_reply__descriptor, &m, WAIT_MS, err);
        if (r == 1) {
            print_piece(seen, (const LogsReply *)m);
            protobuf_c_message_free_unpacked(m, NULL);
        } else if (r < 0 && err->code == ERR_DEADLINE_EXCEEDED) {
            r = 1;
        }
    }
    rpc_stream_close(s);
    return r < 0 ? -1 : 0;
}

static int print_logs(struct cli *cli, LogsRequest *q)
{
    static struct seen seen;
    struct error err;
    int64_t until = 0;
    terminal_catch_interrupt();
    for (;;) {
        seen.any = false;
        int r = read_stream(cli, q, &seen, &err);
        if (terminal_interrupted()) {
            return EXIT_DETACHED;
        }
        if (r == 0) {
            return EXIT_DONE;
        }
        /* The server went away while it was followed: go on where we were. */
        until = seen.any ? clock_mono_ms() + AWAY_LIMIT_MS : until;
        if (!q->follow || err.code != ERR_UNAVAILABLE || clock_mono_ms() > until) {
            return cli_fail(&err);
        }
        clock_sleep_ms(RETRY_MS);
    }
}

static int run(struct cli *cli, int argc, char **argv)
{
    LogsRequest q = LOGS_REQUEST__INIT;
    const char *job, *rank = NULL;
    int64_t attempt = 0;
    bool follow = false, attempt_given = false;
    const struct arg_flag flags[] = {
        {"follow", 'f', ARG_BOOL, &follow, NULL},
        {"rank", 'r', ARG_TEXT, &rank, NULL},
        {"attempt", 0, ARG_INT, &attempt, &attempt_given},
        {0},
    };
    int n = args_parse(flags, argc, argv, &job, 1);
    if (n < 0) {
        return EXIT_USAGE;
    }
    if (n == 0) {
        return cli_usage(argv[0], "which job? Give its number or its name");
    }
    int64_t number = -1;
    if (rank && strcmp(rank, "node") && (!args_read_int(rank, &number) || number > INT32_MAX)) {
        return cli_usage(argv[0], "--rank %s: expected a number, or \"node\"", rank);
    }
    if (attempt > INT32_MAX) {
        return cli_usage(argv[0], "--attempt: too large");
    }
    q.job = (char *)(uintptr_t)job;
    q.has_rank = rank != NULL;
    q.rank = (int32_t)number;
    q.has_attempt = attempt_given;
    q.attempt = (int32_t)attempt;
    q.has_follow = 1;
    q.follow = follow;
    return print_logs(cli, &q);
}

const struct verb verb_logs = {
    .name = "logs",
    .args = "JOB [-f] [--rank N|node] [--attempt A]",
    .help = "print what the ranks of a job have written",
    .text =
        "Without --rank: all ranks, each line with its rank in front. `--rank node` is the log of\n"
        "the process that watches over the ranks of a host.\n\n"
        "  -f, --follow   go on until the job ends\n"
        "  -r, --rank N   this rank only, as it wrote it\n"
        "  --attempt A    of an earlier attempt; the latest otherwise\n\n"
        "  tandem logs shakespeare -f --rank 0\n",
    .run = run,
    .text_only = true,
};
