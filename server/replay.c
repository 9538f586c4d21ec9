#include "server/replay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "proto/journal.h"
#include "proto/text.h"

#define FOLDER (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

struct reader {
    struct journal_head want;
    int dir_fd;
    int64_t acked_seq;
    int64_t next_seq; /* wanted */
    struct buf ups;   /* WorkerUp * */
    char loss[320];   /* why what follows next_seq - 1 can't be had */
};

/* logs/attempt-A of the job; none of the folders is a link. -1: errno. */
static int open_logs(const char *data_dir, int64_t job_id, int32_t attempt)
{
    char job[24], logs[24];
    snprintf(job, sizeof job, "%lld", (long long)job_id);
    snprintf(logs, sizeof logs, "attempt-%d", attempt);
    const char *const path[] = {"jobs", job, "logs", logs};
    int fd = open(data_dir, FOLDER & ~O_NOFOLLOW);
    for (size_t i = 0; fd >= 0 && i < sizeof path / sizeof *path; i++) {
        int next = openat(fd, path[i], FOLDER);
        int errnum = errno;
        close(fd);
        errno = errnum;
        fd = next;
    }
    return fd;
}

static void note_loss(struct reader *r, const char *name, const char *why)
{
    if (!*r->loss) {
        snprintf(r->loss, sizeof r->loss, "%s: %.280s", name, why);
    }
}

/* False: enough, or what follows can't be had. */
static bool take_record(struct reader *r, const char *name, const struct journal_record *record)
{
    ProtobufCMessage *message;
    struct error err = {0};
    if (record->seq < r->next_seq) {
        return true;
    }
    if (record->seq > r->next_seq) {
        char why[96];
        snprintf(why, sizeof why, "report %lld follows on %lld", (long long)record->seq,
                 (long long)r->next_seq - 1);
        note_loss(r, name, why);
        return false;
    }
    if (text_unpack(&worker_up__descriptor, record->body, record->len, 4 * JOURNAL_BODY_MAX,
                    &message, &err) != 0) {
        note_loss(r, name, err.text);
        return false;
    }
    WorkerUp *up = (WorkerUp *)message;
    if (up->job_id != r->want.job_id || up->attempt != r->want.attempt || up->seq != record->seq) {
        protobuf_c_message_free_unpacked(message, NULL);
        note_loss(r, name, "a report of another attempt");
        return false;
    }
    buf_append(&r->ups, &up, sizeof up);
    r->next_seq++;
    return r->ups.len < REPLAY_RECORDS_MAX * sizeof up;
}

/* *is_old: nothing in it is new. */
static int read_segment(struct reader *r, int32_t number, bool *is_old, struct error *err)
{
    char name[JOURNAL_NAME_MAX], *text;
    size_t len, at = JOURNAL_HEAD_BYTES;
    struct journal_record record;
    struct error why = {0};
    *is_old = false;
    r->want.segment = number;
    journal_name(name, number);
    if (journal_read(r->dir_fd, &r->want, &text, &len, &why) != 0) {
        if (why.code == ERR_DATA_LOSS || why.code == ERR_UNIMPLEMENTED) {
            note_loss(r, name, why.text);
            return 0;
        }
        *err = why;
        return -1;
    }
    int rc;
    int64_t last = 0;
    while ((rc = journal_take_record(text, len, &at, &record, &why)) == 1) {
        last = record.seq;
        if (!take_record(r, name, &record)) {
            break;
        }
    }
    if (rc < 0) {
        note_loss(r, name, why.text); /* the next segment may go on where it ends */
    }
    *is_old = rc == 0 && last <= r->acked_seq;
    free(text);
    return 0;
}

static void remove_segments(const struct reader *r, const int32_t *list, size_t num)
{
    for (size_t i = 0; i < num; i++) {
        char name[JOURNAL_NAME_MAX];
        journal_name(name, list[i]);
        unlinkat(r->dir_fd, name, 0);
    }
}

/* What no tandem-node has written is not worth the time that it takes. */
static int check_size(const struct reader *r, const int32_t *list, size_t num, struct error *err)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < num; i++) {
        char name[JOURNAL_NAME_MAX];
        struct stat st;
        journal_name(name, list[i]);
        if (fstatat(r->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            bytes += st.st_size < JOURNAL_BYTES_MAX ? st.st_size : JOURNAL_BYTES_MAX;
        }
        if (bytes > JOURNAL_BYTES_MAX + (int64_t)JOURNAL_FILE_MAX) {
            return error_set(err, ERR_RESOURCE_EXHAUSTED, "over %lld MiB",
                             (long long)(JOURNAL_BYTES_MAX >> 20));
        }
    }
    return 0;
}

static int read_all(struct reader *r, struct error *err)
{
    int32_t *list;
    size_t num, num_old = 0;
    if (journal_list(r->dir_fd, &list, &num, err) != 0) {
        return -1;
    }
    int rc = check_size(r, list, num, err);
    for (size_t i = 0; i < num && rc == 0 && r->ups.len < REPLAY_RECORDS_MAX * sizeof(void *);
         i++) {
        bool is_old;
        rc = read_segment(r, list[i], &is_old, err);
        num_old += is_old && num_old == i;
    }
    if (rc == 0) {
        remove_segments(r, list, r->ups.len ? num_old : num);
    }
    free(list);
    return rc;
}

int replay_read(struct replay *out, const char *data_dir, int64_t job_id, int32_t attempt,
                int64_t acked_seq, struct error *err)
{
    struct reader r = {.want = {.job_id = job_id, .attempt = attempt},
                       .acked_seq = acked_seq,
                       .next_seq = acked_seq + 1};
    memset(out, 0, sizeof *out);
    int logs_fd = open_logs(data_dir, job_id, attempt);
    r.dir_fd = logs_fd < 0 ? -1 : openat(logs_fd, JOURNAL_FOLDER, FOLDER);
    int errnum = errno, rc = 0;
    bool is_there = r.dir_fd >= 0;
    if (is_there) {
        rc = read_all(&r, err);
        close(r.dir_fd);
        if (rc == 0 && !r.ups.len) {
            unlinkat(logs_fd, JOURNAL_FOLDER, AT_REMOVEDIR);
        }
    } else if (errnum != ENOENT && errnum != ENOTDIR && errnum != ELOOP) {
        rc = error_errno(err, errnum, "open");
    } /* else it had nothing to say, or all of it has arrived */
    if (logs_fd >= 0) {
        close(logs_fd);
    }
    out->num_ups = r.ups.len / sizeof *out->ups;
    out->ups = (WorkerUp **)(void *)buf_take(&r.ups);
    if (rc != 0) {
        replay_free(out);
        return error_wrap(err, "the journal of job %lld, attempt %d", (long long)job_id, attempt);
    }
    if (!out->num_ups) {
        snprintf(out->loss, sizeof out->loss, "%s", r.loss);
    }
    return 0;
}

void replay_free(struct replay *r)
{
    for (size_t i = 0; i < r->num_ups; i++) {
        worker_up__free_unpacked(r->ups[i], NULL);
    }
    free(r->ups);
    memset(r, 0, sizeof *r);
}
