/* tandem-probe: a ProbeRequest on stdin to its end, a ProbeReply on stdout. Exit code 0 with every
 * reply, also one that refuses; 1 where none could be written. One thread; the caller kills it at
 * its deadline (60 s), and where it may not, because we are another user, an alarm does.
 *
 * With --watch DEVICES it looks at GPUs instead, for tandem-node: see watch.h. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "base/log.h"
#include "proto/text.h"
#include "runtime/probe/probe.h"
#include "runtime/probe/watch.h"

#define ALARM_S 62
#define REQUEST_MAX_BYTES ((size_t)1 << 20)
#define MESSAGE_MAX_BYTES ((size_t)16 << 20)

static int read_request(struct buf *in, struct error *err)
{
    for (;;) {
        char *room = buf_reserve(in, 4096);
        ssize_t n = read(STDIN_FILENO, room, 4096);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return error_errno(err, errno, "probe request");
        }
        if (n == 0) {
            return 0;
        }
        in->len += (size_t)n;
        if (in->len > REQUEST_MAX_BYTES) {
            return error_set(err, ERR_INVALID_ARGUMENT, "probe request: longer than %zu bytes",
                             REQUEST_MAX_BYTES);
        }
    }
}

static ProbeReply *answer_stdin(void)
{
    struct buf in = {0};
    struct error err = {0};
    ProbeReply *reply;
    ProtobufCMessage *request;
    if (read_request(&in, &err) != 0 || text_unpack(&probe_request__descriptor, in.data, in.len,
                                                    MESSAGE_MAX_BYTES, &request, &err) != 0) {
        reply = probe_refuse(&err);
    } else {
        reply = probe_answer((const ProbeRequest *)request);
        protobuf_c_message_free_unpacked(request, NULL);
    }
    buf_free(&in);
    return reply;
}

static const char help[] = "tandem-probe looks at models, data and this host for tandemd: a "
                           "ProbeRequest on standard input,\n"
                           "a ProbeReply on standard output. tandemd and the CLI start it; it "
                           "isn't meant to be run by hand.\n";

int main(int argc, char **argv)
{
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        printf("%s", help);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("tandem-probe %s\n", TANDEM_VERSION);
        return 0;
    }
    log_init("tandem-probe");
    if (argc == 3 && strcmp(argv[1], "--watch") == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* where its library hangs, no end of stdin is seen */
        signal(SIGPIPE, SIG_IGN);
        return watch_run(argv[2]);
    }
    alarm(ALARM_S);
    ProbeReply *reply = answer_stdin();
    size_t len = probe_reply__get_packed_size(reply);
    uint8_t *bytes = malloc(len ? len : 1);
    ASSERT(bytes);
    probe_reply__pack(reply, bytes);
    probe_reply__free_unpacked(reply, NULL);
    int rc = fs_write_all(STDOUT_FILENO, bytes, len);
    if (rc != 0) {
        log_error("reply: %s", strerror(errno));
    }
    free(bytes);
    return rc == 0 ? 0 : 1;
}
