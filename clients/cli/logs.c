#include <string.h>

#include "clients/cli/args.h"
#include "clients/cli/away.h"
#include "clients/cli/job.h"
#include "clients/cli/follow.h"
#include "clients/cli/terminal.h"
#include "clients/cli/verbs.h"

enum { WAIT_MS = 200, MAX_RANKS = 4096 };

/* How far each rank's log was printed, and how far this stream has got: a stream that is opened
 * again begins at the beginning. */
struct seen {
    int32_t attempt;
    int64_t printed[MAX_RANKS + 1]; /* bytes of the file, by rank + 1 */
    int64_t at[MAX_RANKS + 1];
    bool prefixed;
    bool connected;   /* the server has taken this stream up */
    bool said_silent; /* that nothing is written */
};

/* Bytes of the file that a line stands for: it may have its rank in front. */
static int64_t line_bytes(const struct seen *seen, const LogsReply *r, const char *line, size_t len)
{
    char prefix[32];
    size_t n = (size_t)snprintf(prefix, sizeof prefix, "rank %d: ", r->rank);
    bool has = seen->prefixed && len >= n && memcmp(line, prefix, n) == 0;
    return (int64_t)(len - (has ? n : 0));
}

/* Prints the lines of a piece that were not printed yet. */
static void print_new_lines(const struct seen *seen, const LogsReply *r, int64_t at,
                            int64_t printed)
{
    const char *p = (const char *)r->data.data, *end = p + r->data.len;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t len = newline ? (size_t)(newline - p) + 1 : (size_t)(end - p);
        int64_t bytes = line_bytes(seen, r, p, len);
        if (printed <= at) {
            fwrite(p, 1, len, stdout);
        } else if (printed < at + bytes) { /* it was printed in part */
            fwrite(p + len - (at + bytes - printed), 1, (size_t)(at + bytes - printed), stdout);
        }
        at += bytes;
        p += len;
    }
}

static void print_piece(struct seen *seen, const LogsReply *r)
{
    if (r->rank < -1 || r->rank >= MAX_RANKS) {
        fwrite(r->data.data, 1, r->data.len, stdout);
        fflush(stdout);
        return;
    }
    if (r->attempt != seen->attempt) {
        memset(seen->printed, 0, sizeof seen->printed);
        memset(seen->at, 0, sizeof seen->at);
        seen->attempt = r->attempt;
    }
    int64_t *at = &seen->at[r->rank + 1], *printed = &seen->printed[r->rank + 1];
    print_new_lines(seen, r, *at, *printed);
    fflush(stdout);
    *at = r->next_offset;
    *printed = r->next_offset > *printed ? r->next_offset : *printed;
}

/* An open stream of a job that has written nothing, most often one that waits: said once. */
static void say_silent(struct seen *seen, const LogsRequest *q)
{
    if (q->follow && seen->connected && !seen->attempt && !seen->said_silent) {
        fprintf(stderr, "tandem: nothing is written yet; waiting for it\n");
        seen->said_silent = true;
    }
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
    for (int32_t i = 0; i <= MAX_RANKS; i++) {
        seen->at[i] = q->from_offset;
    }
    int r = 1;
    while (r > 0 && !terminal_interrupted()) {
        ProtobufCMessage *m;
        bool is_open = rpc_stream_is_open(s); /* asked before: one that is refused isn't */
        r = rpc_stream_recv(s, &logs_reply__descriptor, &m, WAIT_MS, err);
        if (r == 1) {
            seen->connected = true;
            print_piece(seen, (const LogsReply *)m);
            protobuf_c_message_free_unpacked(m, NULL);
        } else if (r < 0 && err->code == ERR_DEADLINE_EXCEEDED) {
            seen->connected = seen->connected || is_open;
            say_silent(seen, q);
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
    bool was_there = false;
    seen.prefixed = !q->has_rank;
    terminal_catch_interrupt();
    for (;;) {
        seen.connected = false;
        int r = read_stream(cli, q, &seen, &err);
        if (terminal_interrupted()) {
            return EXIT_DETACHED;
        }
        if (r == 0) {
            return EXIT_DONE;
        }
        /* The server went away while it was followed: go on where we were. */
        if (seen.connected) {
            was_there = cli->answered = true;
            cli->away_since_ms = 0;
        }
        bool is_busy = err.code == ERR_RESOURCE_EXHAUSTED && was_there;
        if (!q->follow || (err.code != ERR_UNAVAILABLE && !is_busy)) {
            return cli_fail(&err);
        }
        if (!cli->away_since_ms && cli->answered) {
            fprintf(stderr, "tandem: %s; the job goes on, trying again\n",
                    is_busy ? err.text : "the server is away");
        }
        if (!away_wait(cli, &err)) {
            return cli_fail(&err);
        }
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
    if (job_parse(flags, argc, argv, &job)) {
        return EXIT_USAGE;
    }
    int64_t number = -1;
    if (rank && strcmp(rank, "node") && (!args_read_int(rank, &number) || number > INT32_MAX)) {
        return cli_usage(argv[0], "--rank %s: expected a number, or \"node\"", rank);
    }
    if (attempt > INT32_MAX) {
        return cli_usage(argv[0], "--attempt: too large");
    }
    char id[32];
    q.job = (char *)(uintptr_t)(follow ? job_newest_to_follow : job_newest)(cli, job, id);
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
