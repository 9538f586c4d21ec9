#include "server/rpc/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    BACKLOG = 511,
    LEFTOVER_MS = 5000,
};

/* host of "host:port" or "[v6]:port" into out; the port, or -1. */
static int split_host(const char *text, char *host, size_t size)
{
    const char *colon = strrchr(text, ':');
    if (!colon || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
        strlen(colon + 1) > 5 || atoi(colon + 1) > 65535) {
        return -1;
    }
    size_t len = (size_t)(colon - text);
    if (len > 2 && text[0] == '[' && text[len - 1] == ']') {
        text++;
        len -= 2;
    } else if (memchr(text, ':', len)) {
        return -1;
    }
    if (len == 0 || len >= size) {
        return -1;
    }
    memcpy(host, text, len);
    host[len] = 0;
    return atoi(colon + 1);
}

static int socket_of(struct listener *l, int family, const char *text, struct error *err)
{
    l->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return l->fd >= 0 ? 0 : error_errno(err, errno, "listen on %s: socket", text);
}

static int listen_on(struct listener *l, const struct sockaddr *sa, socklen_t len, const char *text,
                     struct error *err)
{
    int on = 1;
    if (sa->sa_family != AF_UNIX) {
        setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    }
    /* Nobody can connect between bind and listen: time to set the mode of the file. */
    if (bind(l->fd, sa, len) != 0 ||
        (l->is_unix && chmod(l->path, l->for_any ? 0666 : 0600) != 0) ||
        listen(l->fd, BACKLOG) != 0) {
        return error_errno(err, errno, "listen on %s", text);
    }
    return 0;
}

/* ---- unix ---------------------------------------------------------------------------------- */

/* 0: somebody answers. Else -1, and *e says why. */
static int try_connect(const struct sockaddr_un *sa, int *e)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r = fd < 0 ? -1 : connect(fd, (const struct sockaddr *)sa, sizeof *sa);
    *e = r == 0 ? 0 : errno;
    if (fd >= 0) {
        close(fd);
    }
    return r;
}

/* Removes a socket file that nobody answers on. */
static int make_room(const struct sockaddr_un *sa, const char *text, struct error *err)
{
    struct stat st;
    if (lstat(sa->sun_path, &st) != 0) {
        return errno == ENOENT ? 0 : error_errno(err, errno, "listen on %s", text);
    }
    if (!S_ISSOCK(st.st_mode)) {
        return error_set(err, ERR_ALREADY_EXISTS,
                         "listen on %s: a file that is no socket is in the way", text);
    }
    int e = 0;
    int64_t until = clock_mono_ms() + LEFTOVER_MS;
    /* A child that a killed server was just starting holds its socket until it has become the other
     * program: that is nobody. */
    while (try_connect(sa, &e) == 0 && clock_mono_ms() < until) {
        clock_sleep_ms(20);
    }
    if (e == 0) {
        return error_set(err, ERR_ALREADY_EXISTS, "listen on %s: another server answers there",
                         text);
    }
    if (e != ECONNREFUSED) {
        return error_errno(err, e, "listen on %s: the socket file that is there", text);
    }
    if (unlink(sa->sun_path) != 0 && errno != ENOENT) {
        return error_errno(err, errno, "listen on %s: remove the stale socket", text);
    }
    return 0;
}

/* ---- addresses ----------------------------------------------------------------------------- */

static int parse_tcp(const char *text, bool tls, struct sockaddr_storage *sa, struct error *err)
{
    char host[64];
    struct sockaddr_in *v4 = (struct sockaddr_in *)sa;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)sa;
    int port = split_host(text, host, sizeof host);
    bool loopback;
    if (port < 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "listen on %s: expected host:port or unix:/path", text);
    }
    if (strcmp(host, "localhost") == 0) {
        snprintf(host, sizeof host, "127.0.0.1");
    }
    memset(sa, 0, sizeof *sa);
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        loopback = ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    } else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    } else {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "listen on %s: an address of this host is needed, not a name (0.0.0.0 or "
                         "[::] means all of them)",
                         text);
    }
    if (!loopback && !tls) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "listen on %s: plain TCP is for loopback only (127.0.0.1, [::1], "
                         "localhost); others need TLS: tls.cert_file and tls.key_file in the "
                         "config file, which `tandem admin init` makes",
                         text);
    }
    return 0;
}

static int parse_unix(const char *text, struct sockaddr_un *sa, struct error *err)
{
    const char *path = strchr(text, ':') + 1;
    if (path[0] != '/') {
        return error_set(err, ERR_INVALID_ARGUMENT, "listen on %s: the path must be absolute",
                         text);
    }
    if (strlen(path) >= sizeof sa->sun_path) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "listen on %s: a socket path has at most %zu bytes, this one %zu", text,
                         sizeof sa->sun_path - 1, strlen(path));
    }
    *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(sa->sun_path, path, strlen(path));
    return 0;
}

static bool is_unix(const char *text)
{
    return strncmp(text, "unix:", 5) == 0 || strncmp(text, "unix-any:", 9) == 0;
}

int listener_check(const char *text, bool tls, struct error *err)
{
    struct sockaddr_storage tcp;
    struct sockaddr_un un;
    return is_unix(text) ? parse_unix(text, &un, err) : parse_tcp(text, tls, &tcp, err);
}

/* ---- open and close ------------------------------------------------------------------------ */

static int open_unix(struct listener *l, const char *text, struct error *err)
{
    struct sockaddr_un sa;
    struct stat st;
    if (parse_unix(text, &sa, err)) {
        return -1;
    }
    l->is_unix = true;
    l->for_any = text[4] == '-';
    snprintf(l->path, sizeof l->path, "%s", sa.sun_path);
    if (make_room(&sa, text, err) || socket_of(l, AF_UNIX, text, err) ||
        listen_on(l, (struct sockaddr *)&sa, sizeof sa, text, err)) {
        return -1;
    }
    if (lstat(l->path, &st) == 0) {
        l->device = st.st_dev;
        l->inode = st.st_ino;
    }
    return 0;
}

static int open_tcp(struct listener *l, const char *text, bool tls, struct error *err)
{
    socklen_t len = sizeof l->bound;
    if (parse_tcp(text, tls, &l->bound, err) || socket_of(l, l->bound.ss_family, text, err)) {
        return -1;
    }
    int off = 0;
    if (l->bound.ss_family == AF_INET6) {
        len = sizeof(struct sockaddr_in6);
        setsockopt(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    } else {
        len = sizeof(struct sockaddr_in);
    }
    if (listen_on(l, (struct sockaddr *)&l->bound, len, text, err)) {
        return -1;
    }
    /* With the port that the kernel chose, if it was 0; it has the same place in both kinds. */
    if (getsockname(l->fd, (struct sockaddr *)&l->bound, &len) != 0) {
        return error_errno(err, errno, "listen on %s", text);
    }
    l->port = ntohs(((struct sockaddr_in *)&l->bound)->sin_port);
    return 0;
}

int listener_open(struct listener *out, const char *text, bool tls, struct error *err)
{
    struct listener l = {.fd = -1};
    if (is_unix(text) ? open_unix(&l, text, err) : open_tcp(&l, text, tls, err)) {
        if (l.fd >= 0) {
            close(l.fd);
        }
        return -1;
    }
    *out = l;
    return 0;
}

void listener_name(const struct listener *l, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&l->bound;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&l->bound;
    if (l->is_unix) {
        snprintf(out, size, "unix%s:%s", l->for_any ? "-any" : "", l->path);
    } else if (l->bound.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(out, size, "[%s]:%d", host, l->port);
    } else {
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(out, size, "%s:%d", host, l->port);
    }
}

int listener_reopen(struct listener *l, struct error *err)
{
    char text[sizeof l->path + 16];
    struct listener fresh;
    listener_name(l, text, sizeof text);
    listener_close(l);
    /* What is refused without TLS was refused when it was opened. */
    if (listener_open(&fresh, text, true, err)) {
        return -1;
    }
    *l = fresh;
    return 0;
}

void listener_close(struct listener *l)
{
    struct stat st;
    if (l->fd >= 0) {
        close(l->fd);
    }
    l->fd = -1;
    if (l->is_unix && lstat(l->path, &st) == 0 && st.st_dev == l->device && st.st_ino == l->inode) {
        unlink(l->path);
    }
}
