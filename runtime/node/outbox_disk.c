/* The outbox and its disk. The keeper writes what came in to the journal, moves it to the window or
 * leaves it on disk, and reads it back; the syncer makes it durable. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "runtime/node/outbox_state.h"

#define BATCH_BYTES ((size_t)1 << 18)
/* Where nothing urgent waits. */
#define SYNC_MS 1000
/* After a write that failed. */
#define RETRY_MS 1000
/* The journal is read back so often until it is given up, and the attempt with it: some seconds. */
#define READ_TRIES 8
#define REREAD_FIRST_MS 50
#define REREAD_MOST_MS 1000

static void wait_ms(struct outbox *o, pthread_cond_t *c, int64_t ms)
{
    if (ms < 0) {
        pthread_cond_wait(c, &o->lock);
        return;
    }
    int64_t until = clock_mono_ns() + ms * 1000000;
    struct timespec ts = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    pthread_cond_timedwait(c, &o->lock, &ts);
}

/* A note of our own, while the lock is held. */
static void say(struct outbox *o, const char *text)
{
    log_warn("%s", text);
    pthread_mutex_unlock(&o->lock);
    outbox_put_note(o, text);
    pthread_mutex_lock(&o->lock);
}

/* ---- to disk ----------------------------------------------------------------------------------
 */

/* What the journal lacks, oldest first, as records. Returns the last number; 0 = nothing. */
static int64_t gather(struct outbox *o, struct buf *records, bool *urgent)
{
    const struct parcels *lists[] = {&o->window, &o->inbox};
    int64_t last = 0;
    for (int i = o->window_end - 1 > o->written_seq ? 0 : 1; i < 2; i++) {
        for (const struct parcel *p = lists[i]->first; p; p = p->next) {
            if (p->seq <= o->written_seq) {
                continue;
            }
            if (last && records->len + JOURNAL_RECORD_BYTES + p->len > BATCH_BYTES) {
                return last;
            }
            journal_put_record(records, p->seq, p->body, p->len);
            *urgent = *urgent || p->urgent;
            last = p->seq;
        }
    }
    return last;
}

static void begin_failing(struct outbox *o, const struct error *err)
{
    o->retry_ms = clock_mono_ms() + RETRY_MS;
    if (!o->failing) {
        char text[700];
        o->failing = true;
        snprintf(text, sizeof text,
                 "reports can't be written to disk and are kept in memory: %.500s", err->text);
        say(o, text);
    }
}

static void write_batch(struct outbox *o, struct buf *records)
{
    bool urgent = false;
    struct error err = {0};
    o->written_seq = o->acked_seq > o->written_seq ? o->acked_seq : o->written_seq;
    buf_clear(records);
    int64_t last = gather(o, records, &urgent);
    if (!last) {
        return;
    }
    pthread_mutex_unlock(&o->lock);
    int rc = spool_append(o->spool, records, last, &err);
    pthread_mutex_lock(&o->lock);
    if (rc != 0) {
        begin_failing(o, &err);
        return;
    }
    o->written_seq = last > o->written_seq ? last : o->written_seq;
    o->sync_due = true;
    o->sync_urgent = o->sync_urgent || urgent;
    pthread_cond_signal(&o->unsynced);
    if (o->failing) {
        o->failing = false;
        say(o, "reports are written to disk again");
    }
}

/* ---- in memory --------------------------------------------------------------------------------
 */

static void admit(struct outbox *o, struct parcel *p)
{
    outbox_push(&o->window, p);
    o->window_end = p->seq + 1;
    o->unsent = o->unsent ? o->unsent : p;
    pthread_cond_signal(&o->filled);
}

/* From the inbox on: into the window, or left to the disk. */
static void empty_inbox(struct outbox *o)
{
    while (o->inbox.first) {
        bool written = o->inbox.first->seq <= o->written_seq;
        bool is_next = o->inbox.first->seq == o->window_end;
        if (!written && !(o->failing && is_next)) {
            return;
        }
        struct parcel *p = outbox_pop(&o->inbox);
        if (is_next && (!written || o->window.num_bytes < o->options.window_bytes)) {
            admit(o, p);
        } else {
            free(p);
        }
    }
}

/* What a full disk had left to memory is on disk again: memory gives it back. What was sent stays,
 * so that no acknowledgement can be for what isn't here. */
static void shrink_window(struct outbox *o)
{
    size_t most = o->options.window_bytes;
    int64_t last = o->window_end - 1;
    if (!o->spool || o->failing || last > o->written_seq || last <= o->sent_seq ||
        o->window.num_bytes <= 2 * most) {
        return;
    }
    struct parcels all = o->window;
    o->window = (struct parcels){.end = &o->window.first};
    o->window_end = all.first->seq;
    while (all.first) {
        struct parcel *p = outbox_pop(&all);
        if (o->window.num_bytes < most || p->seq <= o->sent_seq) {
            outbox_push(&o->window, p);
            o->window_end = p->seq + 1;
        } else {
            o->unsent = o->unsent == p ? NULL : o->unsent;
            free(p);
        }
    }
}

static bool has_disk_part(const struct outbox *o)
{
    return o->window_end < (o->inbox.first ? o->inbox.first->seq : o->last_seq + 1);
}

static bool lacks_window(const struct outbox *o)
{
    return has_disk_part(o) && !o->broken && o->window.num_bytes < o->options.window_bytes / 2;
}

static bool wants_refill(const struct outbox *o)
{
    return lacks_window(o) && (!o->num_unread || clock_mono_ms() >= o->reread_ms);
}

struct refill {
    struct parcels list;
    int64_t next;
    size_t max_bytes;
};

static bool take_record(void *arg, const struct journal_record *r)
{
    struct refill *f = arg;
    if (r->seq != f->next || f->list.num_bytes >= f->max_bytes) {
        return false;
    }
    outbox_push(&f->list, outbox_new_parcel(r->seq, r->body, r->len));
    f->next++;
    return true;
}

/* A disk that fails once, a process out of descriptors; not a damaged journal. */
static bool may_pass(const struct error *err)
{
    return err->code == ERR_UNAVAILABLE || err->code == ERR_RESOURCE_EXHAUSTED ||
           err->code == ERR_DEADLINE_EXCEEDED;
}

/* Nothing could be read back; err: NULL = nothing is there. */
static void not_read(struct outbox *o, const struct error *err)
{
    bool passes = err && may_pass(err);
    if (passes && ++o->num_unread < READ_TRIES) {
        int64_t pause_ms = (int64_t)REREAD_FIRST_MS << (o->num_unread - 1);
        o->reread_ms = clock_mono_ms() + (pause_ms < REREAD_MOST_MS ? pause_ms : REREAD_MOST_MS);
        if (o->num_unread == 1) {
            log_warn("reports can't be read back, which is tried again: %s", err->text);
        }
        return;
    }
    char tries[32] = "";
    if (passes) {
        snprintf(tries, sizeof tries, " in %d tries", READ_TRIES);
    }
    o->broken = true;
    snprintf(o->why, sizeof o->why, "reports from number %lld on can't be read back%s: %.400s",
             (long long)o->window_end, tries, err ? err->text : "they are missing in the journal");
}

static void refill(struct outbox *o)
{
    struct refill f = {.next = o->window_end, .max_bytes = o->options.window_bytes / 2 + 1};
    struct error err = {0};
    f.list.end = &f.list.first;
    pthread_mutex_unlock(&o->lock);
    int rc = spool_read(o->spool, f.next - 1, take_record, &f, &err);
    pthread_mutex_lock(&o->lock);
    if (f.list.first) {
        o->num_unread = 0;
    } else {
        not_read(o, rc != 0 ? &err : NULL);
    }
    while (f.list.first) {
        admit(o, outbox_pop(&f.list));
    }
}

/* ---- threads ----------------------------------------------------------------------------------
 */

/* The journal lacks something that somebody may yet ask for. */
static bool lacks_some(const struct outbox *o)
{
    return o->spool && o->last_seq > o->written_seq && o->last_seq > o->acked_seq;
}

static bool can_write(const struct outbox *o)
{
    return lacks_some(o) && (!o->failing || clock_mono_ms() >= o->retry_ms);
}

static void keep_once(struct outbox *o, struct buf *records)
{
    if (can_write(o)) {
        write_batch(o, records);
    }
    empty_inbox(o);
    shrink_window(o);
    if (wants_refill(o)) {
        refill(o);
        empty_inbox(o);
    }
    if (o->spool && o->dropped_seq < o->acked_seq) {
        int64_t seq = o->dropped_seq = o->acked_seq;
        pthread_mutex_unlock(&o->lock);
        spool_drop(o->spool, seq);
        pthread_mutex_lock(&o->lock);
    }
    outbox_tell_room(o);
    if (o->broken) {
        outbox_wake_owner(o);
    }
}

static bool has_work(const struct outbox *o)
{
    return can_write(o) || wants_refill(o) || (o->spool && o->dropped_seq < o->acked_seq) ||
           (o->inbox.first && o->failing && o->inbox.first->seq == o->window_end);
}

/* Milliseconds until something is tried again; -1: nothing is. */
static int64_t until_retry(const struct outbox *o)
{
    int64_t due_ms = o->failing && lacks_some(o) ? o->retry_ms : INT64_MAX;
    if (o->num_unread && lacks_window(o) && o->reread_ms < due_ms) {
        due_ms = o->reread_ms;
    }
    int64_t left_ms = due_ms - clock_mono_ms();
    return due_ms == INT64_MAX ? -1 : left_ms > 0 ? left_ms : 0;
}

static void *keeper_main(void *arg)
{
    struct outbox *o = arg;
    struct buf records = {0};
    pthread_mutex_lock(&o->lock);
    while (!o->stopping) {
        if (!has_work(o)) {
            wait_ms(o, &o->work, until_retry(o));
        } else {
            keep_once(o, &records);
        }
    }
    /* One try, also where the last has just failed. */
    o->retry_ms = 0;
    for (int64_t before = -1; can_write(o) && o->written_seq > before;) {
        before = o->written_seq;
        write_batch(o, &records);
    }
    o->stopped = o->sync_urgent = true;
    pthread_cond_signal(&o->unsynced);
    pthread_mutex_unlock(&o->lock);
    buf_free(&records);
    return NULL;
}

static void *syncer_main(void *arg)
{
    struct outbox *o = arg;
    bool was_well = true;
    int64_t last_ms = clock_mono_ms() - SYNC_MS;
    pthread_mutex_lock(&o->lock);
    while (o->sync_due || !o->stopped) {
        int64_t left = last_ms + SYNC_MS - clock_mono_ms();
        if (!o->sync_due || (!o->sync_urgent && left > 0)) {
            wait_ms(o, &o->unsynced, o->sync_due ? left : -1);
            continue;
        }
        struct error err = {0};
        o->sync_due = o->sync_urgent = false;
        pthread_mutex_unlock(&o->lock);
        int rc = spool_sync(o->spool, &err);
        last_ms = clock_mono_ms();
        if (rc != 0 && was_well) {
            log_warn("reports may be lost if this machine goes down: %s", err.text);
        }
        was_well = rc == 0;
        pthread_mutex_lock(&o->lock);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

int outbox_start_disk(struct outbox *o, struct error *err)
{
    o->failing = !o->options.dir;
    if (o->options.dir) {
        struct spool_options s = {.dir = o->options.dir,
                                  .job_id = o->options.job_id,
                                  .attempt = o->options.attempt,
                                  .max_bytes = o->options.disk_bytes,
                                  .segment_bytes = o->options.segment_bytes};
        if (spool_new(&o->spool, &s, err) != 0) {
            return -1;
        }
    }
    int errnum = pthread_create(&o->keeper, NULL, keeper_main, o);
    if (!errnum) {
        errnum = pthread_create(&o->syncer, NULL, syncer_main, o);
        if (errnum) {
            pthread_mutex_lock(&o->lock);
            o->stopping = true;
            pthread_cond_signal(&o->work);
            pthread_mutex_unlock(&o->lock);
            pthread_join(o->keeper, NULL);
        }
    }
    if (errnum) {
        spool_free(o->spool);
        return error_errno(err, errnum, "start a thread");
    }
    return 0;
}

void outbox_stop_disk(struct outbox *o)
{
    pthread_mutex_lock(&o->lock);
    o->stopping = true;
    pthread_cond_signal(&o->work);
    pthread_mutex_unlock(&o->lock);
    pthread_join(o->keeper, NULL);
    pthread_join(o->syncer, NULL);
}
