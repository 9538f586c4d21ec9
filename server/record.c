#include "server/record.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "server/record_format.h"
#include "server/record_mail.h"
#include "server/store/backup.h"

struct record {
    struct world inner;
    struct record_asked asked;
    int fd;
    int64_t written;
    bool in_step, is_over;
    bool is_muted;     /* what runs is not in the record, nor is what it asks */
    struct buf others; /* const struct mail * of this step that are not in the record */
    struct buf items, frame;
};

/* ---- files ---- */

/* "record-12.log" -> 12; 0 = not one of ours. */
static long number_of(const char *name)
{
    long n;
    char ending[8];
    return sscanf(name, "record-%ld.%3s", &n, ending) == 2 && n > 0 &&
                   (strcmp(ending, "log") == 0 || strcmp(ending, "db") == 0)
               ? n
               : 0;
}

/* The newest number, after what is too old is removed. */
static int tidy(const char *dir, long *newest, struct error *err)
{
    *newest = 0;
    DIR *d = opendir(dir);
    if (!d) {
        return error_errno(err, errno, "open %s", dir);
    }
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        long n = number_of(e->d_name);
        *newest = n > *newest ? n : *newest;
    }
    rewinddir(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) {
        long n = number_of(e->d_name);
        if (n && n <= *newest + 1 - RECORD_KEPT && unlinkat(dirfd(d), e->d_name, 0) != 0) {
            log_warn("remove %s/%s: %s", dir, e->d_name, strerror(errno));
        }
    }
    closedir(d);
    return 0;
}

static bool go_on(void *arg)
{
    (void)arg;
    return true;
}

int record_new(struct record **out, const char *dir, const char *db, struct error *err)
{
    char path[PATH_MAX];
    long newest;
    struct store_copy copy;
    if (fs_mkdirs(dir, 0700, err) != 0 || tidy(dir, &newest, err) != 0) {
        return -1;
    }
    if (snprintf(path, sizeof path, "%s/record-%ld.db", dir, newest + 1) >= (int)sizeof path) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%.200s...: the path is too long", dir);
    }
    if (store_backup(db, path, go_on, NULL, &copy, err) != 0) {
        return error_wrap(err, "record");
    }
    snprintf(path, sizeof path, "%s/record-%ld.log", dir, newest + 1);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        return error_errno(err, errno, "%s", path);
    }
    struct record *r = calloc(1, sizeof *r);
    ASSERT(r);
    r->fd = fd;
    r->is_over = fs_write_all(fd, RECORD_MAGIC, strlen(RECORD_MAGIC)) != 0;
    log_info("recording to %s", path);
    *out = r;
    return 0;
}

static void write_step(struct record *r)
{
    if (r->items.len) {
        buf_clear(&r->frame);
        record_put_frame(&r->frame, &r->items);
        if (fs_write_all(r->fd, r->frame.data, r->frame.len) != 0) {
            log_warn("the record ends here: %s", strerror(errno));
            r->is_over = true;
        }
        r->written += (int64_t)r->frame.len;
        buf_clear(&r->items);
    }
}

/* ---- steps ---- */

static bool listens(const struct record *r)
{
    return r->in_step && !r->is_over && !r->is_muted;
}

static void begins(void *ctx, const struct mailbox_node *chain)
{
    struct record *r = ctx;
    r->in_step = true;
    for (const struct mailbox_node *n = chain; n && !r->is_over; n = n->next) {
        const struct mail *m = (const struct mail *)n;
        if (!record_mail_put(&r->items, &r->asked, m)) {
            buf_append(&r->others, &m, sizeof m);
        }
    }
}

static void runs(void *ctx, const struct mail *m)
{
    struct record *r = ctx;
    const struct mail **others = (const struct mail **)(void *)r->others.data;
    r->is_muted = false;
    for (size_t i = 0; i < r->others.len / sizeof m; i++) {
        r->is_muted = r->is_muted || others[i] == m;
    }
}

static void ends(void *ctx, bool committed)
{
    struct record *r = ctx;
    r->in_step = r->is_muted = false;
    buf_clear(&r->others);
    if (r->is_over) {
        return;
    }
    bool is_full = r->written > RECORD_MAX_BYTES;
    if (!committed || is_full) {
        record_put(&r->items, committed ? RECORD_FULL : RECORD_FAILED);
    }
    write_step(r);
    if (!committed || is_full) {
        log_warn("the record ends here, until the next start: %s",
                 committed ? "it is too long" : "a step was not committed");
        r->is_over = true;
    }
}

/* ---- the world ---- */

static int64_t mono_ms(void *ctx)
{
    struct record *r = ctx;
    int64_t value = r->inner.mono_ms(r->inner.ctx);
    if (listens(r)) {
        record_put(&r->items, RECORD_MONO);
        record_put_number(&r->items, value);
    }
    return value;
}

static int64_t wall_us(void *ctx)
{
    struct record *r = ctx;
    int64_t value = r->inner.wall_us(r->inner.ctx);
    if (listens(r)) {
        record_put(&r->items, RECORD_WALL);
        record_put_number(&r->items, value);
    }
    return value;
}

static int64_t busy_ms(void *ctx)
{
    struct record *r = ctx;
    int64_t value = r->inner.busy_ms(r->inner.ctx);
    if (listens(r)) {
        record_put(&r->items, RECORD_BUSY);
        record_put_number(&r->items, value);
    }
    return value;
}

static int make_token(void *ctx, char token[AUTH_TOKEN_SIZE], uint8_t sha256[HASH_BYTES],
                      struct error *err)
{
    struct record *r = ctx;
    int rc = r->inner.make_token(r->inner.ctx, token, sha256, err);
    if (listens(r) && rc == 0) {
        record_put(&r->items, RECORD_TOKEN);
        record_put_bytes(&r->items, sha256, HASH_BYTES);
    }
    return rc;
}

static void add_token(void *ctx, int64_t job, int32_t attempt, const uint8_t sha256[HASH_BYTES])
{
    struct record *r = ctx;
    r->inner.add_token(r->inner.ctx, job, attempt, sha256);
}

static int still_allowed(void *ctx, const struct caller *caller, enum method_access access,
                         struct error *err)
{
    struct record *r = ctx;
    int rc = r->inner.still_allowed ? r->inner.still_allowed(r->inner.ctx, caller, access, err) : 0;
    if (listens(r)) {
        record_put(&r->items, RECORD_ALLOWED);
        record_put_number(&r->items, rc);
    }
    return rc;
}

static void refused(void *ctx, const struct caller *caller)
{
    struct record *r = ctx;
    if (r->inner.refused) {
        r->inner.refused(r->inner.ctx, caller);
    }
}

static bool exists(void *ctx, const char *path)
{
    struct record *r = ctx;
    bool is_there = r->inner.exists(r->inner.ctx, path);
    if (listens(r)) {
        record_put(&r->items, RECORD_EXISTS);
        record_put_number(&r->items, is_there);
    }
    return is_there;
}

static void deliver(void *ctx, struct out *o)
{
    struct record *r = ctx;
    if (listens(r) && record_is_told(o)) {
        record_put(&r->items, RECORD_OUT);
        record_put_number(&r->items, o->kind);
        record_asked_note(&r->asked, o);
    }
    r->inner.deliver(r->inner.ctx, o);
}

static void put_topology(struct buf *items, const struct topology *t)
{
    size_t len = cluster_spec__get_packed_size(t->cluster);
    uint8_t *packed = malloc(len + 1);
    ASSERT(packed);
    cluster_spec__pack(t->cluster, packed);
    record_put_bytes(items, &t->host, sizeof t->host);
    record_put_bytes(items, packed, len);
    free(packed);
}

static void put_scheduler(struct buf *items, const SchedulerConfig *c)
{
    static const SchedulerConfig defaults = SCHEDULER_CONFIG__INIT;
    c = c ? c : &defaults;
    size_t len = scheduler_config__get_packed_size(c);
    uint8_t *packed = malloc(len + 1);
    ASSERT(packed);
    scheduler_config__pack(c, packed);
    record_put_bytes(items, packed, len);
    free(packed);
}

struct world record_world(struct record *r, const struct controller_options *o, struct world inner)
{
    r->inner = inner;
    record_put(&r->items, RECORD_OPEN);
    record_put_text(&r->items, TANDEM_VERSION);
    record_put_text(&r->items, o->data_dir);
    put_topology(&r->items, o->topology);
    record_put_number(&r->items, o->lease_ms);
    record_put_number(&r->items, o->tenant_queued_jobs);
    put_scheduler(&r->items, o->scheduler);
    return (struct world){.ctx = r,
                          .mono_ms = mono_ms,
                          .wall_us = wall_us,
                          .busy_ms = busy_ms,
                          .make_token = make_token,
                          .add_token = add_token,
                          .still_allowed = still_allowed,
                          .refused = refused,
                          .exists = exists,
                          .deliver = deliver,
                          .begins = begins,
                          .runs = runs,
                          .ends = ends};
}

void record_free(struct record *r)
{
    if (!r) {
        return;
    }
    if (!r->is_over) {
        record_put(&r->items, RECORD_STOPPED);
        write_step(r);
    }
    close(r->fd);
    buf_free(&r->items);
    buf_free(&r->others);
    buf_free(&r->frame);
    buf_free(&r->asked.mail);
    free(r);
}
