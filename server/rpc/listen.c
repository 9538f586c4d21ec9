#include "server/rpc/listen.h"

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

static int parse_unix(struct listen_address *out, const char *text, struct error *err)
{
    const char *path = text + strlen("unix:");
    if (path[0] != '/') {
        return error_set(err, ERR_INVALID_ARGUMENT, "listen on %s: the path must be absolute",
                         text);
    }
    if (strlen(path) >= sizeof out->path) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "listen on %s: a socket path has at most %zu bytes, this one %zu", text,
                         sizeof out->path - 1, strlen(path));
    }
    out->is_unix = true;
    snprintf(out->path, sizeof out->path, "%s", path);
    snprintf(out->target, sizeof out->target, "%s", text);
    return 0;
}

int listen_parse(struct listen_address *out, const char *text, struct error *err)
{
    *out = (struct listen_address){0};
    if (strncmp(text, "unix:", 5) == 0) {
        return parse_unix(out, text, err);
    }
    char host[64];
    int port = split_host(text, host, sizeof host);
    if (port < 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "listen on %s: expected host:port or unix:/path", text);
    }
    struct in_addr v4;
    struct in6_addr v6;
    if (strcmp(host, "localhost") == 0) {
        snprintf(host, sizeof host, "127.0.0.1");
    }
    if (inet_pton(AF_INET, host, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127) {
        snprintf(out->target, sizeof out->target, "%s:%d", host, port);
        return 0;
    }
    if (inet_pton(AF_INET6, host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6)) {
        snprintf(out->target, sizeof out->target, "[::1]:%d", port);
        return 0;
    }
    return error_set(err, ERR_UNIMPLEMENTED,
                     "listen on %s: only loopback addresses (127.0.0.1, [::1], localhost) and "
                     "unix:/path: others need TLS, which is not built yet",
                     text);
}

static void fill_unix(struct sockaddr_un *sa, const char *path)
{
    *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(sa->sun_path, path, strlen(path));
}

int listen_prepare(const struct listen_address *a, struct error *err)
{
    struct stat st;
    if (!a->is_unix || (lstat(a->path, &st) != 0 && errno == ENOENT)) {
        return 0;
    }
    if (!S_ISSOCK(st.st_mode)) {
        return error_set(err, ERR_ALREADY_EXISTS,
                         "listen on %s: a file that is no socket is in the way", a->target);
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return error_errno(err, errno, "listen on %s: socket", a->target);
    }
    struct sockaddr_un sa;
    fill_unix(&sa, a->path);
    int r = connect(fd, (struct sockaddr *)&sa, sizeof sa);
    int e = errno;
    close(fd);
    if (r == 0) {
        return error_set(err, ERR_ALREADY_EXISTS, "listen on %s: another server answers there",
                         a->target);
    }
    if (e != ECONNREFUSED) {
        return error_errno(err, e, "listen on %s: the socket file that is there", a->target);
    }
    if (unlink(a->path) != 0 && errno != ENOENT) {
        return error_errno(err, errno, "listen on %s: remove the stale socket", a->target);
    }
    return 0;
}

int listen_explain(const struct listen_address *a, struct error *err)
{
    struct sockaddr_storage sa = {0};
    socklen_t len;
    char host[64];
    if (a->is_unix) {
        fill_unix((struct sockaddr_un *)&sa, a->path);
        len = sizeof(struct sockaddr_un);
    } else {
        int port = split_host(a->target, host, sizeof host);
        struct sockaddr_in *v4 = (struct sockaddr_in *)&sa;
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&sa;
        if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
            v4->sin_family = AF_INET;
            v4->sin_port = htons((uint16_t)port);
            len = sizeof *v4;
        } else {
            inet_pton(AF_INET6, host, &v6->sin6_addr);
            v6->sin6_family = AF_INET6;
            v6->sin6_port = htons((uint16_t)port);
            len = sizeof *v6;
        }
    }
    int fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int r = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&sa, len);
    int e = errno;
    if (fd >= 0) {
        close(fd);
    }
    if (r == 0) {
        return error_set(err, ERR_UNAVAILABLE, "listen on %s: refused by gRPC", a->target);
    }
    return error_errno(err, e, "listen on %s", a->target);
}
