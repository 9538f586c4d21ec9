#include "server/backup.h"

#include <dirent.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "server/msg.h"
#include "server/store/backup.h"
#include "server/worker.h"

struct backup {
    struct worker *worker;
    char data_dir[PATH_MAX];
    atomic_bool stop;
};

static bool go_on(void *arg)
{
    struct backup *b = arg;
    return !atomic_load(&b->stop);
}

static int choose_path(const struct backup *b, const char *asked, char *out, size_t size,
                       struct error *err)
{
    if (asked && *asked) {
        if (asked[0] != '/' || snprintf(out, size, "%s", asked) >= (int)size) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "path: wants an absolute path of at most %zu bytes", size - 1);
        }
        return 0;
    }
    char folder[PATH_MAX], name[32];
    time_t now = (time_t)(clock_wall_us() / 1000000);
    struct tm utc;
    strftime(name, sizeof name, "%Y%m%dT%H%M%SZ.db", gmtime_r(&now, &utc));
    if (!fs_join(folder, sizeof folder, b->data_dir, "backup") ||
        !fs_join(out, size, folder, name)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: the path is too long", b->data_dir);
    }
    return fs_mkdirs(folder, 0700, err);
}

static int run_backup(void *owner, struct mail *m, struct error *err)
{
    struct backup *b = owner;
    const BackupRequest *request = (const BackupRequest *)m->message;
    char path[PATH_MAX - 16], db[PATH_MAX];
    struct store_copy copy;
    if (call_is_over(m->call)) {
        return 0; /* nobody would learn of it */
    }
    if (choose_path(b, request->path, path, sizeof path, err) != 0) {
        return -1;
    }
    if (!fs_join(db, sizeof db, b->data_dir, "tandem.db")) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: the path is too long", b->data_dir);
    }
    if (store_backup(db, path, go_on, b, &copy, err) != 0) {
        log_error("backup to %s: %s", path, err->text);
        return -1;
    }
    log_info("backup %s: %lld bytes, sha256 %s", path, (long long)copy.size_bytes, copy.sha256);
    BackupReply *reply = msg_new(&backup_reply__descriptor);
    msg_text(&reply->path, path);
    msg_text(&reply->sha256, copy.sha256);
    MSG_SET(reply, size_bytes, copy.size_bytes);
    MSG_SET(reply, num_jobs, copy.num_jobs);
    call_reply(m->call, &reply->base);
    msg_free(reply);
    return 0;
}

/* What a copy that a kill ended has left: half a database under another name. */
static void remove_partials(const struct backup *b)
{
    char folder[PATH_MAX], path[PATH_MAX];
    DIR *d = fs_join(folder, sizeof folder, b->data_dir, "backup") ? opendir(folder) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strstr(e->d_name, ".db.partial") && fs_join(path, sizeof path, folder, e->d_name)) {
            unlink(path);
        }
    }
    if (d) {
        closedir(d);
    }
}

int backup_new(struct backup **out, const char *data_dir, struct error *err)
{
    struct backup *b = calloc(1, sizeof *b);
    if (!b) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    atomic_init(&b->stop, false);
    snprintf(b->data_dir, sizeof b->data_dir, "%s", data_dir);
    remove_partials(b);
    if (worker_new(&b->worker, "backup", b, NULL, err) != 0) {
        free(b);
        return -1;
    }
    *out = b;
    return 0;
}

void backup_free(struct backup *b)
{
    if (b) {
        atomic_store(&b->stop, true);
        worker_free(b->worker);
        free(b);
    }
}

void backup_post(struct backup *b, struct call *c, const BackupRequest *request)
{
    worker_post(b->worker, mail_new(sizeof(struct mail), run_backup, c, &request->base));
}
