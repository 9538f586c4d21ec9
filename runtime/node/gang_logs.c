/* Logs of ranks that say too much. A rank has its log open and only appends, so the file can
 * neither be renamed nor be replaced under it. Instead the middle is punched out: the disk is free,
 * what is kept lies where it lay, and a reader's offset means the same before and after. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "runtime/node/gang_state.h"

/* A hole of whole blocks: no filesystem has larger ones. */
#define BLOCK_BYTES ((int64_t)64 << 10)

void gang_log_path(const struct gang *g, int32_t rank, char *out, size_t size)
{
    snprintf(out, size, "%s/rank-%d.log", g->options.log_dir, (int)rank);
}

/* Where there are no holes all of it has to go. */
static void cut_to_nothing(int fd, int64_t size)
{
    char line[160];
    if (ftruncate(fd, 0) != 0) {
        return;
    }
    int n = snprintf(line, sizeof line,
                     "tandem-node: %lld bytes of output were dropped: too long, and this "
                     "filesystem can't drop a part\n",
                     (long long)size);
    fs_write_all(fd, line, (size_t)n);
}

static void trim(const struct gang *g, struct gang_member *m, const char *path)
{
    struct stat st;
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    int64_t begin = (g->options.log_head_bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    int64_t end = (st.st_size - g->options.log_tail_bytes) / BLOCK_BYTES * BLOCK_BYTES;
    if (end <= begin) {
        close(fd);
        return;
    }
    if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, end - begin) == 0) {
        m->log_dropped_to = end;
    } else if (errno == EOPNOTSUPP || errno == ENOSYS) {
        cut_to_nothing(fd, st.st_size);
        m->log_dropped_to = 0;
    } else {
        log_warn("%s: its middle can't be dropped: %s", path, strerror(errno));
    }
    close(fd);
}

void gang_trim_logs(struct gang *g)
{
    char path[4096];
    struct stat st;
    for (int32_t i = 0; i < g->options.num_ranks; i++) {
        struct gang_member *m = &g->members[i];
        gang_log_path(g, m->rank, path, sizeof path);
        if (stat(path, &st) != 0) {
            continue;
        }
        if (st.st_size < m->log_dropped_to) {
            m->log_dropped_to = 0; /* someone has cut it */
        }
        int64_t kept_from = m->log_dropped_to ? m->log_dropped_to : g->options.log_head_bytes;
        if (st.st_size - kept_from > g->options.log_tail_bytes + g->options.log_tail_bytes / 2) {
            trim(g, m, path);
        }
    }
}
