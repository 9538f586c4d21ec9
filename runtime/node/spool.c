#include "runtime/node/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"

struct segment {
    int32_t number;
    int64_t last_seq;
    size_t len;
};

struct spool {
    struct spool_options options; /* dir: owned */
    int dir_fd;                   /* -1 until the first append */
    bool shared;                  /* with tandemd's group, as the folder above says */
    int fd;                       /* of the last segment; -1 = the next append begins one */
    struct segment *segments;     /* owned */
    size_t num_segments;
    int32_t last_number;
    int64_t num_bytes;
    /* Where the last read stopped, so that the next doesn't begin anew. */
    int32_t at_number;
    size_t at;
    int64_t at_seq; /* the last number before it */
    pthread_mutex_t lock;
    int32_t dirty_from, dirty_to; /* under lock: segments with bytes that may not be on the disk */
    bool dirty_folder;            /* under lock */
};

int spool_new(struct spool **out, const struct spool_options *options, struct error *err)
{
    struct spool *s = calloc(1, sizeof *s);
    char *dir = strdup(options->dir);
    if (!s || !dir) {
        free(s);
        free(dir);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    s->options = *options;
    s->options.dir = dir;
    s->options.segment_bytes =
        options->segment_bytes ? options->segment_bytes : JOURNAL_SEGMENT_BYTES;
    s->dir_fd = s->fd = -1;
    pthread_mutex_init(&s->lock, NULL);
    *out = s;
    return 0;
}

void spool_free(struct spool *s)
{
    if (!s) {
        return;
    }
    if (s->fd >= 0) {
        close(s->fd);
    }
    if (s->dir_fd >= 0) {
        close(s->dir_fd);
    }
    pthread_mutex_destroy(&s->lock);
    free(s->segments);
    free((void *)(uintptr_t)s->options.dir);
    free(s);
}

static void unlink_segment(struct spool *s, int32_t number)
{
    char name[JOURNAL_NAME_MAX];
    journal_name(name, number);
    if (unlinkat(s->dir_fd, name, 0) != 0 && errno != ENOENT) {
        log_warn("%s/%s can't be removed: %s", s->options.dir, name, strerror(errno));
    }
}

void spool_remove(struct spool *s)
{
    for (size_t i = 0; i < s->num_segments; i++) {
        unlink_segment(s, s->segments[i].number);
    }
    s->num_segments = 0;
    rmdir(s->options.dir);
    spool_free(s);
}

/* ---- append ---- */

/* Where this process has a user of its own, tandemd reads and removes as a member of the job
 * folder's group, which setgid hands down. (A chmod would take setgid away: we aren't in it.) */
static bool is_shared(const char *folder)
{
    struct stat st;
    return stat(folder, &st) == 0 && (st.st_mode & S_ISGID) != 0;
}

static int open_folder(struct spool *s, struct error *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", s->options.dir);
    const char *parent = dirname(path);
    if (fs_mkdirs(parent, 0770, err) != 0) {
        return -1;
    }
    s->shared = is_shared(parent);
    if (mkdir(s->options.dir, s->shared ? 0770 : 0700) != 0 && errno != EEXIST) {
        return error_errno(err, errno, "%s", s->options.dir);
    }
    s->dir_fd = open(s->options.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return s->dir_fd < 0 ? error_errno(err, errno, "%s", s->options.dir) : 0;
}

static void seal(struct spool *s)
{
    if (s->fd >= 0) {
        close(s->fd);
        s->fd = -1;
    }
}

static int begin_segment(struct spool *s, struct error *err)
{
    char name[JOURNAL_NAME_MAX];
    struct buf head = {0};
    if (s->dir_fd < 0 && open_folder(s, err) != 0) {
        return -1;
    }
    if (s->num_segments >= JOURNAL_SEGMENTS_MAX) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "over %d segments", JOURNAL_SEGMENTS_MAX);
    }
    struct segment next = {.number = s->last_number + 1, .len = JOURNAL_HEAD_BYTES};
    journal_name(name, next.number);
    int fd = openat(s->dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC,
                    s->shared ? 0660 : 0600);
    if (fd < 0) {
        return error_errno(err, errno, "%s/%s", s->options.dir, name);
    }
    journal_put_head(&head, &(struct journal_head){.job_id = s->options.job_id,
                                                   .attempt = s->options.attempt,
                                                   .segment = next.number});
    int rc = fs_write_all(fd, head.data, head.len);
    int errnum = errno;
    buf_free(&head);
    if (rc != 0) {
        close(fd);
        unlinkat(s->dir_fd, name, 0);
        return error_errno(err, errnum, "%s/%s", s->options.dir, name);
    }
    struct segment *all = realloc(s->segments, (s->num_segments + 1) * sizeof *all);
    ASSERT(all);
    next.last_seq = s->num_segments ? all[s->num_segments - 1].last_seq : 0;
    all[s->num_segments++] = next;
    s->segments = all;
    s->last_number = next.number;
    s->num_bytes += (int64_t)next.len;
    s->fd = fd;
    return 0;
}

static void set_dirty(struct spool *s, int32_t number)
{
    pthread_mutex_lock(&s->lock);
    s->dirty_from = s->dirty_to ? s->dirty_from : number;
    s->dirty_folder = s->dirty_folder || s->dirty_to != number;
    s->dirty_to = number;
    pthread_mutex_unlock(&s->lock);
}

int spool_append(struct spool *s, const struct buf *records, int64_t last_seq, struct error *err)
{
    if (s->num_bytes + (int64_t)records->len > s->options.max_bytes) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: its bound of %lld MiB is reached",
                         s->options.dir, (long long)(s->options.max_bytes >> 20));
    }
    if (s->num_segments && s->segments[s->num_segments - 1].len >= s->options.segment_bytes) {
        seal(s);
    }
    if (s->fd < 0 && begin_segment(s, err) != 0) {
        return -1;
    }
    struct segment *last = &s->segments[s->num_segments - 1];
    if (fs_write_all(s->fd, records->data, records->len) != 0) {
        int errnum = errno;
        /* Half of it may be there. */
        if (ftruncate(s->fd, (off_t)last->len) != 0) {
            seal(s); /* whoever reads stops there, and goes on with the next segment */
        }
        return error_errno(err, errnum, "%s", s->options.dir);
    }
    last->len += records->len;
    last->last_seq = last_seq;
    s->num_bytes += (int64_t)records->len;
    set_dirty(s, last->number);
    return 0;
}

/* ---- read, drop ---- */

/* 1: fn has had enough; 0: the segment's end. */
static int read_segment(struct spool *s, const struct segment *g, int64_t after_seq,
                        bool (*fn)(void *, const struct journal_record *), void *arg,
                        struct error *err)
{
    struct journal_head head = {
        .job_id = s->options.job_id, .attempt = s->options.attempt, .segment = g->number};
    char *text;
    size_t len;
    if (journal_read(s->dir_fd, &head, &text, &len, err) != 0) {
        return -1;
    }
    struct journal_record r;
    bool goes_on = s->at_number == g->number && s->at_seq <= after_seq;
    size_t at = goes_on ? s->at : JOURNAL_HEAD_BYTES;
    int64_t at_seq = goes_on ? s->at_seq : 0;
    int rc =
        len < g->len ? error_set(err, ERR_DATA_LOSS, "%zu bytes of %zu are there", len, g->len) : 0;
    while (rc == 0) {
        size_t before = at;
        int got = journal_take_record(text, g->len, &at, &r, err);
        if (got <= 0) {
            rc = got;
            break;
        }
        if (r.seq > after_seq && !fn(arg, &r)) {
            at = before;
            rc = 1;
        } else {
            at_seq = r.seq;
        }
    }
    if (rc >= 0) {
        s->at_number = g->number;
        s->at = at;
        s->at_seq = at_seq;
    }
    free(text);
    return rc;
}

int spool_read(struct spool *s, int64_t after_seq,
               bool (*fn)(void *arg, const struct journal_record *record), void *arg,
               struct error *err)
{
    for (size_t i = 0; i < s->num_segments; i++) {
        const struct segment *g = &s->segments[i];
        if (g->last_seq <= after_seq) {
            continue;
        }
        int rc = read_segment(s, g, after_seq, fn, arg, err);
        if (rc < 0) {
            return error_wrap(err, "%s", s->options.dir);
        }
        if (rc > 0) {
            break;
        }
    }
    return 0;
}

void spool_drop(struct spool *s, int64_t seq)
{
    size_t num = 0;
    while (num + 1 < s->num_segments && s->segments[num].last_seq <= seq) {
        unlink_segment(s, s->segments[num].number);
        s->num_bytes -= (int64_t)s->segments[num].len;
        num++;
    }
    s->num_segments -= num;
    if (num) {
        memmove(s->segments, s->segments + num, s->num_segments * sizeof *s->segments);
    }
}

/* ---- sync ---- */

/* Through a descriptor of its own: it syncs what any has written. */
static int sync_segment(struct spool *s, int32_t number, struct error *err)
{
    char name[JOURNAL_NAME_MAX];
    journal_name(name, number);
    int fd = openat(s->dir_fd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return errno == ENOENT ? 0 : error_errno(err, errno, "%s/%s", s->options.dir, name);
    }
    int rc = fdatasync(fd);
    int errnum = errno;
    close(fd);
    return rc == 0 ? 0 : error_errno(err, errnum, "%s/%s: fdatasync", s->options.dir, name);
}

int spool_sync(struct spool *s, struct error *err)
{
    pthread_mutex_lock(&s->lock);
    int32_t from = s->dirty_from, to = s->dirty_to;
    bool folder = s->dirty_folder;
    s->dirty_from = s->dirty_to = 0;
    s->dirty_folder = false;
    pthread_mutex_unlock(&s->lock);
    int rc = 0;
    for (int32_t n = from; n && n <= to && rc == 0; n++) {
        rc = sync_segment(s, n, err);
    }
    return rc == 0 && folder && fsync(s->dir_fd) != 0
               ? error_errno(err, errno, "%s: fsync", s->options.dir)
               : rc;
}
