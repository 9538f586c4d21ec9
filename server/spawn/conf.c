#include "server/spawn/spawn.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1000

bool spawn_is_name(const char *text)
{
    size_t n = strlen(text), digits = strspn(text, "0123456789");
    if (n == 0 || n >= SPAWN_NAME_SIZE || text[0] == '-') {
        return false;
    }
#ifdef SPAWN_NUMERIC_USERS
    if (digits == n) {
        return true;
    }
#endif
    return digits == 0 && strspn(text, "abcdefghijklmnopqrstuvwxyz"
                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") == n;
}

static int fail(char *why, int line, const char *text)
{
    snprintf(why, SPAWN_WHY_SIZE, "line %d: %s", line, text);
    return -1;
}

/* Absolute, without words that lead elsewhere. */
static bool is_path(const char *text)
{
    return text[0] == '/' && strlen(text) < SPAWN_PATH_SIZE - 64 && !strstr(text, "/../") &&
           !strstr(text, "//") && text[strlen(text) - 1] != '/' &&
           (strlen(text) < 3 || strcmp(text + strlen(text) - 3, "/..") != 0);
}

static int take_path(char *field, const char *value, int line, char *why)
{
    if (field[0]) {
        return fail(why, line, "said twice");
    }
    if (!is_path(value)) {
        return fail(why, line, "expected an absolute path without .., // or a / at its end");
    }
    snprintf(field, SPAWN_PATH_SIZE, "%s", value);
    return 0;
}

static int take_name(char *field, const char *value, int line, char *why)
{
    if (field[0]) {
        return fail(why, line, "said twice");
    }
    if (!spawn_is_name(value)) {
        return fail(why, line, "expected a user's or group's name");
    }
    snprintf(field, SPAWN_NAME_SIZE, "%s", value);
    return 0;
}

static int take_uid(int64_t *field, const char *value, int line, char *why)
{
    char *end;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (errno || *end || !isdigit((unsigned char)value[0]) || number < 100 ||
        number >= UINT32_MAX) {
        return fail(why, line, "expected a uid of 100 or more");
    }
    *field = number;
    return 0;
}

static int take(struct spawn_conf *c, const char *key, const char *value, int line, char *why)
{
    if (strcmp(key, "caller") == 0) {
        return take_name(c->caller, value, line, why);
    }
    if (strcmp(key, "group") == 0) {
        return take_name(c->group, value, line, why);
    }
    if (strcmp(key, "programs") == 0) {
        return take_path(c->programs, value, line, why);
    }
    if (strcmp(key, "jobs") == 0) {
        return take_path(c->jobs, value, line, why);
    }
    if (strcmp(key, "min_uid") == 0) {
        return take_uid(&c->min_uid, value, line, why);
    }
    if (strcmp(key, "user") == 0) {
        if (c->num_users == SPAWN_USERS_MAX) {
            return fail(why, line, "too many users; use a group");
        }
        return take_name(c->users[c->num_users++], value, line, why);
    }
    return fail(why, line, "expected caller, min_uid, user, group, programs or jobs");
}

static int take_line(struct spawn_conf *c, char *text, int line, char *why)
{
    text[strcspn(text, "#")] = 0;
    char *save, *key = strtok_r(text, " \t\r", &save), *value = strtok_r(NULL, " \t\r", &save);
    if (!key) {
        return 0;
    }
    if (!value || strtok_r(NULL, " \t\r", &save)) {
        return fail(why, line, "expected a key and one value");
    }
    return take(c, key, value, line, why);
}

int spawn_conf_parse(struct spawn_conf *out, const char *text, size_t len, char *why)
{
    memset(out, 0, sizeof *out);
    out->min_uid = 1000;
    int line = 0;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = (end ? (size_t)(end - text) : len) - at;
        char copy[LINE_MAX_BYTES + 1];
        line++;
        if (n > LINE_MAX_BYTES || memchr(text + at, 0, n)) {
            return fail(why, line, "too long, or not text");
        }
        memcpy(copy, text + at, n);
        copy[n] = 0;
        if (take_line(out, copy, line, why) != 0) {
            return -1;
        }
        at += n + 1;
    }
    if (!out->caller[0] || !out->programs[0] || !out->jobs[0] ||
        (!out->num_users && !out->group[0])) {
        return fail(why, line, "caller, programs, jobs, and user or group must all be said");
    }
    size_t n = strlen(out->jobs);
    if (n < 6 || strcmp(out->jobs + n - 5, "/jobs") != 0) {
        return fail(why, line, "jobs: expected DATA_DIR/jobs");
    }
    return 0;
}

int spawn_conf_read(struct spawn_conf *out, const char *path, char *why)
{
    static char text[SPAWN_CONF_MAX_BYTES + 1];
    struct stat st;
    size_t len = 0;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0) {
        snprintf(why, SPAWN_WHY_SIZE, "%s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    bool trusted = S_ISREG(st.st_mode) && st.st_uid == 0 && (st.st_mode & 022) == 0;
    while (trusted && len < sizeof text && (n = read(fd, text + len, sizeof text - len)) > 0) {
        len += (size_t)n;
    }
    close(fd);
    if (!trusted || len > SPAWN_CONF_MAX_BYTES) {
        snprintf(why, SPAWN_WHY_SIZE,
                 "%s: must be a file of root's that nobody else may write, of at most %d bytes",
                 path, SPAWN_CONF_MAX_BYTES);
        return -1;
    }
    char inner[SPAWN_WHY_SIZE];
    if (spawn_conf_parse(out, text, len, inner) != 0) {
        snprintf(why, SPAWN_WHY_SIZE, "%s: %.800s", path, inner);
        return -1;
    }
    return 0;
}
