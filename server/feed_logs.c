/* Logs as streams: the ranks' files, piece by piece, as fast as the reader reads; with follow,
 * until the job has ended and all is sent. */
#include "server/feed_watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "server/job.h"
#include "server/msg.h"

#define PIECE_BYTES 65536
#define PIECES_QUEUED 16
#define FOLLOW_MS 100
#define BUSY_MS 2

static void set_files(struct watcher *w, int32_t first_rank, int32_t num)
{
    free(w->files);
    w->files = calloc((size_t)num, sizeof *w->files);
    ASSERT(w->files);
    w->num_files = num;
    for (int32_t i = 0; i < num; i++) {
        w->files[i].rank = first_rank + i;
    }
}

int feed_logs_open(struct feed *f, struct watcher *w, const LogsRequest *r,
                   const struct job_row *row, struct error *err)
{
    (void)f;
    w->follow = r->follow;
    w->prefixed = !r->has_rank;
    w->newest_attempt = !r->has_attempt || r->attempt <= 0;
    w->attempt = w->newest_attempt ? row->attempt.number : r->attempt;
    if (w->attempt > row->attempt.number) {
        return error_set(err, ERR_NOT_FOUND, "job %lld has had %d attempts, no attempt %d",
                         (long long)row->id, row->attempt.number, w->attempt);
    }
    if (r->has_rank && (r->rank < -1 || r->rank >= row->devices)) {
        return error_set(err, ERR_NOT_FOUND, "job %lld has ranks 0 to %d, no rank %d",
                         (long long)row->id, row->devices - 1, r->rank);
    }
    if (r->from_offset < 0 || (r->from_offset > 0 && !r->has_rank)) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "from_offset: 0 or more, and only together with a rank");
    }
    if (r->has_rank) {
        set_files(w, r->rank, 1);
        w->files[0].offset = r->from_offset;
    } else {
        set_files(w, 0, row->devices);
    }
    return 0;
}

/* The folder may be a tenant's: a link in it must not lead us to another's files. What lies above
 * it is our own. */
static int open_beneath(const char *dir, const char *path)
{
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
    struct open_how how = {.flags = (unsigned)flags,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    int folder = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        return -1;
    }
    int fd = (int)syscall(SYS_openat2, folder, path, &how, sizeof how);
    if (fd < 0 && errno == ENOSYS) { /* before Linux 5.6; no tenant has a user of its own there */
        fd = openat(folder, path, flags);
    }
    close(folder);
    return fd;
}

static int open_log(const struct feed *f, const struct watcher *w, const struct log_file *lf)
{
    char dir[4200], path[96];
    if (!job_dir(dir, sizeof dir, f->data_dir, w->job_id)) {
        return -1;
    }
    int n = snprintf(path, sizeof path, "logs/attempt-%d/", w->attempt);
    snprintf(path + n, sizeof path - (size_t)n, lf->rank < 0 ? "node.log" : "rank-%d.log",
             lf->rank);
    return open_beneath(dir, path);
}

/* A piece of a log. */
struct piece {
    int64_t offset; /* where it begins: lf's, unless something isn't there any more */
    size_t len;     /* 0 = none (yet), also where there is no file */
    uint64_t inode;
    bool ends;    /* nothing will be written behind it: there is a hole */
    char gap[96]; /* what to say about that; "" = nothing */
};

/* tandem-node drops the middle of a long log and leaves a hole; whoever moves or cuts the file
 * leaves us with an offset that means nothing. */
static void read_piece(int fd, const struct log_file *lf, bool prefixed, char *data,
                       struct piece *p)
{
    struct stat st;
    *p = (struct piece){.offset = lf->offset, .inode = lf->inode};
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        return;
    }
    bool other = lf->inode && lf->inode != st.st_ino;
    p->inode = st.st_ino;
    if (other || st.st_size < p->offset) {
        p->offset = 0;
        snprintf(p->gap, sizeof p->gap, "[the log was %s; this is it from its beginning]\n",
                 other ? "replaced" : "cut short");
    }
    off_t from = lseek(fd, p->offset, SEEK_DATA);
    if (from > p->offset) {
        /* Most likely in the middle of a line. */
        snprintf(p->gap, sizeof p->gap, "%s[%lld bytes of output were dropped]\n",
                 prefixed ? "" : "\n", (long long)(from - p->offset));
        p->offset = from;
    }
    off_t hole = lseek(fd, p->offset, SEEK_HOLE);
    int64_t most =
        hole > p->offset && hole - p->offset < PIECE_BYTES ? hole - p->offset : PIECE_BYTES;
    ssize_t n = pread(fd, data, (size_t)most, p->offset);
    p->len = n > 0 ? (size_t)n : 0;
    p->ends = n > 0 && hole < st.st_size && p->offset + n == hole;
}

/* next_offset: where the reader goes on. */
static bool send_piece(struct watcher *w, const struct log_file *lf, const char *data, size_t len,
                       int64_t next_offset)
{
    struct buf lines = {0};
    if (w->prefixed) {
        for (size_t at = 0; at < len;) {
            const char *end = memchr(data + at, '\n', len - at);
            size_t n = end ? (size_t)(end - data) - at + 1 : len - at;
            buf_printf(&lines, "rank %d: ", lf->rank);
            buf_append(&lines, data + at, n);
            at += n;
        }
        if (data[len - 1] != '\n') {
            buf_putc(&lines, '\n');
        }
    }
    LogsReply reply = LOGS_REPLY__INIT;
    MSG_SET(&reply, rank, lf->rank);
    MSG_SET(&reply, attempt, w->attempt);
    MSG_SET(&reply, next_offset, next_offset);
    reply.has_data = 1;
    reply.data.data = (uint8_t *)(uintptr_t)(w->prefixed ? lines.data : data);
    reply.data.len = w->prefixed ? lines.len : len;
    bool sent = call_send(w->call, &reply.base);
    buf_free(&lines);
    return sent;
}

/* Sends what there is of an open log, and where bytes are missing says so. False: the reader has
 * enough for now. */
static bool pump_open(int fd, struct watcher *w, struct log_file *lf, bool last_chance)
{
    static _Thread_local char data[PIECE_BYTES];
    for (;;) {
        struct piece p;
        read_piece(fd, lf, w->prefixed, data, &p);
        if (*p.gap) {
            if (call_queued(w->call) >= PIECES_QUEUED ||
                !send_piece(w, lf, p.gap, strlen(p.gap), p.offset)) {
                return false;
            }
            lf->offset = p.offset;
        }
        lf->inode = p.inode;
        size_t len = p.len;
        if (len == 0) {
            return true;
        }
        /* Whole lines, unless the line is longer than a piece or nothing will follow it. */
        const char *end = memrchr(data, '\n', len);
        bool is_last = p.ends || (last_chance && len < PIECE_BYTES);
        if (!end && len < PIECE_BYTES && !is_last) {
            return true;
        }
        if (end && !is_last) {
            len = (size_t)(end - data) + 1;
        }
        if (call_queued(w->call) >= PIECES_QUEUED ||
            !send_piece(w, lf, data, len, lf->offset + (int64_t)len)) {
            return false;
        }
        lf->offset += (int64_t)len;
    }
}

static bool pump_file(struct feed *f, struct watcher *w, struct log_file *lf, bool last_chance)
{
    int fd = open_log(f, w, lf);
    if (fd < 0) {
        return true;
    }
    bool all = pump_open(fd, w, lf, last_chance);
    close(fd);
    return all;
}

bool feed_logs_pump(struct feed *f, struct watcher *w, int64_t *wait_ms)
{
    int64_t now_ms = clock_mono_ms();
    if (now_ms < w->next_poll_ms) {
        *wait_ms = w->next_poll_ms - now_ms;
        return false;
    }
    /* Looked up before the files are read: what ended then has written all that it ever will. */
    struct job_row row;
    bool known = store_job_get(f->reader, w->job_id, &row, NULL) == 1;
    bool older = known && row.attempt.number > w->attempt;
    bool settled = older || !known || !w->follow ||
                   (job_state_is_end(row.state) &&
                    (!row.attempt.number || row.attempt.condition >= ATTEMPT_ENDED));
    for (int32_t i = 0; i < w->num_files; i++) {
        if (!pump_file(f, w, &w->files[i], settled)) {
            *wait_ms = BUSY_MS;
            return false;
        }
    }
    if (settled && w->follow && older && w->newest_attempt) {
        w->attempt++;
        for (int32_t i = 0; i < w->num_files; i++) {
            w->files[i].offset = 0;
            w->files[i].inode = 0;
        }
        *wait_ms = 0;
        return false;
    }
    w->next_poll_ms = now_ms + FOLLOW_MS;
    *wait_ms = FOLLOW_MS;
    return settled;
}
