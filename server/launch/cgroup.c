#include "server/launch/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"

/* ---- which one ---- */

/* Where groups of version 2 are mounted: field 5 of the line whose type is cgroup2. */
static bool find_mount(char *out, size_t size)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char line[4096], path[512];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        const char *type = strstr(line, " - ");
        found = type && strncmp(type, " - cgroup2 ", 11) == 0 &&
                sscanf(line, "%*s %*s %*s %*s %511s", path) == 1;
    }
    if (f) {
        fclose(f);
    }
    return found && snprintf(out, size, "%s", path) < (int)size;
}

static bool find_own(char *out, size_t size)
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[CGROUP_PATH_SIZE];
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        found = strncmp(line, "0::/", 4) == 0;
    }
    if (f) {
        fclose(f);
    }
    return found && snprintf(out, size, "%s", line + 3) < (int)size;
}

static bool is_delegated(const char *dir)
{
    char value[8] = "";
    return getxattr(dir, "user.delegate", value, sizeof value - 1) > 0 && value[0] == '1';
}

void cgroup_find(struct cgroup *out, const char *data_dir)
{
    char mount[512], own[CGROUP_PATH_SIZE];
    const char *named = getenv("TANDEM_CGROUP");
    memset(out, 0, sizeof *out);
    out->owner = 2166136261u;
    for (const char *p = data_dir; *p; p++) {
        out->owner = (out->owner ^ (uint8_t)*p) * 16777619u; /* FNV-1a */
    }
    if (named && named[0] == '/') {
        snprintf(out->dir, sizeof out->dir, "%s", named);
    } else if (find_mount(mount, sizeof mount) && find_own(own, sizeof own)) {
        /* With DelegateSubgroup= we are in a group below the one that is ours. */
        char *slash = strrchr(own, '/');
        char both[CGROUP_PATH_SIZE + 512];
        snprintf(both, sizeof both, "%s%s", mount, own);
        if (!is_delegated(both) && slash) {
            *slash = 0;
            snprintf(both, sizeof both, "%s%s", mount, own);
        }
        if (is_delegated(both) && strlen(both) < sizeof out->dir) {
            memcpy(out->dir, both, strlen(both) + 1);
        }
    }
    if (out->dir[0] && access(out->dir, W_OK) != 0) {
        log_warn("%s is not used for processes: %s", out->dir, strerror(errno));
        out->dir[0] = 0;
    }
    if (out->dir[0]) {
        log_info("processes of attempts are kept together in groups below %s", out->dir);
    }
}

/* ---- an attempt's ---- */

static bool path_of(const struct cgroup *g, int64_t job_id, int32_t attempt, const char *file,
                    char *out, size_t size)
{
    int n = snprintf(out, size, "%s/tandem-%08x-%lld-%d%s", g->dir, (unsigned)g->owner,
                     (long long)job_id, attempt, file);
    return g->dir[0] && n > 0 && (size_t)n < size;
}

static int put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    int rc = fs_write_all(fd, text, strlen(text));
    close(fd);
    return rc;
}

void cgroup_enter(const struct cgroup *g, int64_t job_id, int32_t attempt, int64_t pid)
{
    char path[CGROUP_PATH_SIZE + 128], text[32];
    if (!path_of(g, job_id, attempt, "", path, sizeof path)) {
        return;
    }
    snprintf(text, sizeof text, "%lld", (long long)pid);
    int rc = mkdir(path, 0755) == 0 || errno == EEXIST ? 0 : -1;
    if (rc == 0 && path_of(g, job_id, attempt, "/cgroup.procs", path, sizeof path)) {
        rc = put(path, text);
    }
    if (rc != 0) {
        log_warn("job %lld has no group of its own: %s: %s", (long long)job_id, path,
                 strerror(errno));
    }
}

void cgroup_kill(const struct cgroup *g, int64_t job_id, int32_t attempt)
{
    char path[CGROUP_PATH_SIZE + 128];
    if (path_of(g, job_id, attempt, "/cgroup.kill", path, sizeof path)) {
        put(path, "1"); /* a kernel before 5.14 has no such file: then others find most */
    }
}

size_t cgroup_look(const struct cgroup *g, int64_t job_id, int32_t attempt, int64_t *first)
{
    char path[CGROUP_PATH_SIZE + 128], line[64];
    size_t num = 0;
    if (!path_of(g, job_id, attempt, "", path, sizeof path) || rmdir(path) == 0 ||
        errno == ENOENT) {
        return 0;
    }
    path_of(g, job_id, attempt, "/cgroup.procs", path, sizeof path);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        *first = num++ ? *first : atoll(line);
    }
    if (f) {
        fclose(f);
    }
    return num;
}
