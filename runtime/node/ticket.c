#include "runtime/node/ticket.h"

#include <errno.h>
#include <unistd.h>

#include "base/buf.h"
#include "proto/text.h"

#define TICKET_MAX_BYTES ((size_t)64 << 10)

static int read_all(int fd, struct buf *out, struct error *err)
{
    for (;;) {
        ssize_t n = read(fd, buf_reserve(out, 4096), 4096);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return error_errno(err, errno, "launch ticket on descriptor %d", fd);
        }
        if (n == 0) {
            return 0;
        }
        out->len += (size_t)n;
        if (out->len > TICKET_MAX_BYTES) {
            return error_set(err, ERR_RESOURCE_EXHAUSTED, "launch ticket: over %zu bytes",
                             TICKET_MAX_BYTES);
        }
    }
}

static bool is_absolute(const char *path)
{
    return path && path[0] == '/';
}

static int check(const LaunchTicket *t, struct error *err)
{
    const char *lack = !t->server || !t->server[0] ? "server"
                       : t->job_id <= 0            ? "job_id"
                       : t->attempt <= 0           ? "attempt"
                       : !t->token || !t->token[0] ? "token"
                       : !is_absolute(t->job_dir)  ? "job_dir"
                       : !is_absolute(t->bin_dir)  ? "bin_dir"
                                                   : NULL;
    if (lack) {
        return error_set(err, ERR_INVALID_ARGUMENT, "launch ticket: %s is missing or wrong", lack);
    }
    return 0;
}

int ticket_read(int fd, LaunchTicket **out, struct error *err)
{
    struct buf bytes = {0};
    ProtobufCMessage *message = NULL;
    int rc = read_all(fd, &bytes, err);
    if (rc == 0) {
        rc = text_unpack(&launch_ticket__descriptor, bytes.data, bytes.len, 4 * TICKET_MAX_BYTES,
                         &message, err);
    }
    buf_free(&bytes);
    if (rc == 0 && check((LaunchTicket *)message, err) != 0) {
        protobuf_c_message_free_unpacked(message, NULL);
        rc = -1;
    }
    if (rc == 0) {
        *out = (LaunchTicket *)message;
    }
    return rc;
}
