#include "proto/rpc_why.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A plain connection that came to nothing, although somebody is there: is it a TLS port? */
static bool explain_plain(const struct rpc_why_of *of, struct error *err)
{
    struct rpc_trust nobody = {.ca_pem = (char *)(uintptr_t) "", .ca_is_systems = true};
    struct rpc_view view;
    if (!of->at->host[0] || rpc_tls_look(of->at, &nobody, &view, err) == 0 || !view.version[0]) {
        return false;
    }
    error_set(err, ERR_UNAVAILABLE,
              "the server at %s speaks TLS: write tls://%s:%s, with TANDEM_CA_FILE set or ca.pem "
              "in ~/.config/tandem",
              of->target, of->at->host, of->at->port);
    return true;
}

/* Core's words for a server that has taken a connection, but doesn't greet. */
#define SILENCE "before receiving SETTINGS"

/* Core's words for a connection that ended under a call. */
static bool is_broken(const char *text)
{
    static const char *const words[] = {"ocket closed",    "recvmsg",        "sendmsg",
                                        "onnection reset", "roken pipe",     "ndpoint read failed",
                                        "GOAWAY",          "ransport closed"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strstr(text, words[i])) {
            return true;
        }
    }
    return false;
}

/* Core's words for a connection that was given up for its time, at the end of which it is closed.
 */
static bool is_late(const char *text)
{
    return strstr(text, "timed out") || strstr(text, SILENCE) ||
           strstr(text, "andshake read failed");
}

/* A connection came to nothing. A failed handshake is one reason, and core doesn't say why it
 * failed: looked at again, it is known. True: err says it. *is_there: hands were shaken now. */
static bool explain_tls(const struct rpc_why_of *of, const char *text, bool *is_there,
                        struct error *err)
{
    bool no_connection = strstr(text, "failed to connect") && !strstr(text, "onnection refused");
    struct rpc_view view;
    if (!of->at->tls) {
        /* A TLS port hangs up on what isn't TLS. */
        return no_connection && !strstr(text, SILENCE) && explain_plain(of, err);
    }
    if (!no_connection && !is_broken(text)) {
        return false;
    }
    *is_there = rpc_tls_look(of->at, of->trust, &view, err) == 0;
    if (*is_there || err->code == ERR_UNAVAILABLE) {
        return false;
    }
    error_wrap(err, "no secure connection to %s", of->target);
    return true;
}

/* A socket file whose server has as many connections waiting as it may have: there the kernel
 * doesn't let one wait, and core takes its word for a connection. */
static bool is_crowded(const struct rpc_target *at)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    if (at->host[0] || strlen(at->core + 5) >= sizeof sa.sun_path) {
        return false;
    }
    memcpy(sa.sun_path, at->core + 5, strlen(at->core + 5));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool crowded =
        fd >= 0 && connect(fd, (const struct sockaddr *)&sa, sizeof sa) != 0 && errno == EAGAIN;
    if (fd >= 0) {
        close(fd);
    }
    return crowded;
}

static const char *reason_of(const char *text, bool crowded)
{
    return strstr(text, SILENCE) ? "it took the connection, but said nothing"
           : strstr(text, "connect failed") || strstr(text, "onnection refused")
               ? "connection refused"
           : strstr(text, "No such file") ? "no such socket"
           : crowded                      ? "too many wait to be connected"
                                          : "no connection";
}

bool rpc_why(const struct rpc_why_of *of, enum error_code code, const char *text, struct error *err)
{
    struct error why;
    bool again = false, is_there = false;
    if (code == ERR_UNAVAILABLE && explain_tls(of, text, &is_there, &why)) {
        error_set(err, ERR_UNAVAILABLE, "%s", why.text);
    } else if (code == ERR_UNAVAILABLE && strstr(text, "failed to connect")) {
        bool crowded = is_crowded(of->at);
        error_set(err, ERR_UNAVAILABLE, "no server answers at %s: %s", of->target,
                  reason_of(text, crowded));
        again = crowded || (is_there && is_late(text));
    } else if (code == ERR_UNAVAILABLE && strstr(text, "DNS resolution failed")) {
        error_set(err, ERR_UNAVAILABLE, "no server answers at %s: the name %s isn't known",
                  of->target, of->at->host);
    } else if (code == ERR_UNAVAILABLE && strstr(text, "keepalive watchdog")) {
        error_set(err, ERR_UNAVAILABLE,
                  "the connection to %s broke: no sign of life came from there any more",
                  of->target);
    } else if (code == ERR_UNAVAILABLE && is_broken(text)) {
        error_set(err, ERR_UNAVAILABLE, "the connection to %s broke: %s", of->target, text);
    } else {
        error_set(err, code, "%s", text[0] ? text : error_code_name(code));
    }
    return again;
}
