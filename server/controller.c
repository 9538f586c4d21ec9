#include "server/controller.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/attempts.h"
#include "server/job.h"
#include "server/msg.h"
#include "server/outbox.h"

#define BATCH_MAX 1000
/* After a commit that failed (a full disk, most likely). */
#define COMMIT_RETRY_MS 500

struct controller {
    struct controller_options options; /* store: owned */
    struct mailbox *box;               /* owned */
    struct launching *launching;
    struct probing *probing;
    pthread_t thread;
    bool started;
    atomic_bool stop;
    /* Owner thread. */
    struct job **jobs; /* owned, by id */
    size_t num_jobs, cap_jobs;
    struct buf touched; /* struct job *, in order of their first change in this batch */
    struct outbox outbox;
    struct mailbox_node *backlog; /* mail whose commit failed */
    int64_t now_ms;
    bool schedule;
};

/* ---- jobs in memory ---- */

static size_t job_slot(const struct controller *c, int64_t id)
{
    size_t lo = 0, hi = c->num_jobs;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (c->jobs[mid]->row.id < id) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo;
}

struct job *controller_job(struct controller *c, int64_t id)
{
    size_t i = job_slot(c, id);
    return i < c->num_jobs && c->jobs[i]->row.id == id ? c->jobs[i] : NULL;
}

static struct job *insert_job(struct controller *c, const struct job_row *row)
{
    struct job *j = calloc(1, sizeof *j);
    ASSERT(j);
    j->row = *row;
    j->since_ms = c->now_ms;
    if (c->num_jobs == c->cap_jobs) {
        c->cap_jobs = c->cap_jobs ? 2 * c->cap_jobs : 64;
        c->jobs = realloc(c->jobs, c->cap_jobs * sizeof(struct job *));
        ASSERT(c->jobs);
    }
    size_t i = job_slot(c, row->id);
    memmove(&c->jobs[i + 1], &c->jobs[i], (c->num_jobs - i) * sizeof(struct job *));
    c->jobs[i] = j;
    c->num_jobs++;
    return j;
}

static void free_job(struct job *j)
{
    msg_free(j->spec);
    msg_free(j->facts);
    if (j->worker) {
        call_unref(j->worker);
    }
    free(j);
}

static void remove_job(struct controller *c, struct job *j)
{
    size_t i = job_slot(c, j->row.id);
    ASSERT(i < c->num_jobs && c->jobs[i] == j);
    memmove(&c->jobs[i], &c->jobs[i + 1], (c->num_jobs - i - 1) * sizeof(struct job *));
    c->num_jobs--;
    free_job(j);
}

/* From its row. A spec that can't be read quarantines the job. */
static int load_job(struct controller *c, int64_t id, struct job **out, struct error *err)
{
    struct job_row row;
    int rc = store_job_get(c->options.store, id, &row, err);
    if (rc <= 0) {
        return rc < 0 ? -1 : error_set(err, ERR_NOT_FOUND, "there is no job %lld", (long long)id);
    }
    struct job *j = insert_job(c, &row);
    struct error why = {0};
    if (store_job_spec(c->options.store, id, &j->spec, &why) != 0 ||
        store_job_facts(c->options.store, id, &j->facts, &why) != 0) {
        if (why.code != ERR_DATA_LOSS) {
            remove_job(c, j);
            *err = why;
            return -1;
        }
        log_error("job %lld is quarantined: %s", (long long)id, why.text);
        controller_touch(c, j);
        snprintf(j->row.quarantine, sizeof j->row.quarantine, "%.150s", why.text);
    }
    int64_t wait_us = row.not_before_us - clock_wall_us();
    if (row.state == JOB_QUEUED && wait_us > 0 && j->spec && j->spec->retry) {
        int64_t max_us = (int64_t)(j->spec->retry->max_backoff_s * 1e6);
        j->not_before_ms = c->now_ms + (wait_us < max_us ? wait_us : max_us) / 1000;
    }
    *out = j;
    return 0;
}

int controller_find(struct controller *c, const char *ref, const struct caller *who,
                    struct job **out, struct error *err)
{
    int64_t id;
    const char *tenant = strcmp(who->role, "admin") == 0 ? NULL : who->tenant;
    if (store_job_find(c->options.store, ref, tenant, &id, err) != 1) {
        return -1;
    }
    *out = controller_job(c, id);
    if (!*out && load_job(c, id, out, err) != 0) {
        return -1;
    }
    controller_touch(c, *out); /* so that the batch's end lets it go again */
    return 0;
}

int controller_add(struct controller *c, struct job_row *row, JobSpec *spec, ProbeReply *facts,
                   struct job **out, struct error *err)
{
    size_t spec_len = job_spec__get_packed_size(spec);
    size_t facts_len = probe_reply__get_packed_size(facts);
    uint8_t *packed = malloc(spec_len + facts_len + 1);
    ASSERT(packed);
    job_spec__pack(spec, packed);
    probe_reply__pack(facts, packed + spec_len);
    int rc = c->num_jobs >= CONTROLLER_JOBS_MAX
                 ? error_set(err, ERR_RESOURCE_EXHAUSTED,
                             "the queue is full (%d jobs); try again later", CONTROLLER_JOBS_MAX)
                 : store_job_insert(c->options.store, row, packed, spec_len, packed + spec_len,
                                    facts_len, err);
    free(packed);
    if (rc != 0) {
        msg_free(spec);
        msg_free(facts);
        return -1;
    }
    struct job *j = insert_job(c, row);
    j->spec = spec;
    j->facts = facts;
    controller_touch(c, j);
    j->created = true;
    *out = j;
    return 0;
}

void controller_touch(struct controller *c, struct job *j)
{
    if (!j->touched) {
        j->touched = true;
        j->before = j->row;
        buf_append(&c->touched, &j, sizeof(struct job *));
    }
}

/* ---- what a handler does ---- */

struct store *controller_store(struct controller *c)
{
    return c->options.store;
}

const struct controller_options *controller_about(const struct controller *c)
{
    return &c->options;
}

struct topology *controller_topology(struct controller *c)
{
    return &c->options.topology;
}

struct probing *controller_probing(struct controller *c)
{
    return c->probing;
}

struct launching *controller_launching(struct controller *c)
{
    return c->launching;
}

int64_t controller_now_ms(const struct controller *c)
{
    return c->now_ms;
}

size_t controller_num_jobs(const struct controller *c)
{
    return c->num_jobs;
}

struct job *controller_job_at(struct controller *c, size_t i)
{
    return c->jobs[i];
}

void controller_schedule(struct controller *c)
{
    c->schedule = true;
}

Job *controller_message(struct controller *c, const struct job *j, bool with_spec)
{
    return job_message(&j->row, c->options.data_dir, j->spec, with_spec);
}

void controller_holders(struct controller *c, int64_t *holders)
{
    int32_t num = c->options.topology.num_devices;
    memset(holders, 0, (size_t)num * sizeof *holders);
    for (size_t i = 0; i < c->num_jobs; i++) {
        const struct attempt_row *a = &c->jobs[i]->row.attempt;
        if (a->number == 0 || a->condition == ATTEMPT_GONE) {
            continue;
        }
        for (int32_t d = 0; d < num; d++) {
            if (device_set_has(&a->devices, d)) {
                holders[d] = c->jobs[i]->row.id;
            }
        }
    }
}

static int add_event(struct controller *c, struct job *j, Event *e, const char *kind,
                     const char *actor, bool with_job, struct error *err)
{
    e->has_job_id = e->has_time_us = 1;
    e->job_id = j->row.id;
    e->time_us = clock_wall_us();
    if (j->row.attempt.number) {
        MSG_SET(e, attempt, j->row.attempt.number);
    }
    msg_text(&e->kind, kind);
    msg_text(&e->actor, actor);
    if (store_event_insert(c->options.store, e, err) != 0) {
        msg_free(e);
        return -1;
    }
    struct feed_mail *m = feed_mail_new(j->row.id);
    m->event = e;
    m->job = with_job ? controller_message(c, j, false) : NULL;
    controller_feed(c, m);
    return 0;
}

int controller_event(struct controller *c, struct job *j, const char *kind, const char *actor,
                     int64_t step, struct error *err, const char *fmt, ...)
{
    Event *e = msg_new(&event__descriptor);
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    msg_text(&e->message, text);
    if (step > 0) {
        MSG_SET(e, step, step);
    }
    return add_event(c, j, e, kind, actor, strcmp(kind, "submitted") == 0, err);
}

int controller_move(struct controller *c, struct job *j, JobState to, const char *cause,
                    const char *message, const char *actor, struct error *err)
{
    JobState from = j->row.state;
    if (!job_may_move(from, to)) {
        ASSERT(!"a move that is not in the table");
    }
    controller_touch(c, j);
    j->row.state = to;
    j->row.target = 0;
    snprintf(j->row.cause, sizeof j->row.cause, "%s", cause);
    snprintf(j->row.message, sizeof j->row.message, "%s", message);
    j->row.ended_us = job_state_is_end(to) ? clock_wall_us() : 0;
    j->since_ms = c->now_ms;
    c->schedule = true;
    Event *e = msg_new(&event__descriptor);
    MSG_SET(e, from, from);
    MSG_SET(e, to, to);
    msg_text(&e->cause, cause);
    msg_text(&e->message, message);
    if (j->row.step) {
        MSG_SET(e, step, j->row.step);
    }
    return add_event(c, j, e, "state", actor, true, err);
}

void controller_reply(struct controller *c, struct call *call, void *message)
{
    outbox_add(&c->outbox,
               (struct out){.kind = OUT_REPLY, .call = call_ref(call), .message = message});
}

void controller_send(struct controller *c, struct call *call, void *message)
{
    outbox_add(&c->outbox,
               (struct out){.kind = OUT_SEND, .call = call_ref(call), .message = message});
}

void controller_end_stream(struct controller *c, struct call *call, enum error_code code,
                           const char *fmt, ...)
{
    struct error *e = calloc(1, sizeof *e);
    ASSERT(e);
    e->code = code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    outbox_add(&c->outbox, (struct out){.kind = OUT_END, .call = call_ref(call), .error = e});
}

void controller_launch(struct controller *c, struct launch_mail *m)
{
    outbox_add(&c->outbox, (struct out){.kind = OUT_LAUNCH, .mail = &m->mail});
}

void controller_feed(struct controller *c, struct feed_mail *m)
{
    outbox_add(&c->outbox, (struct out){.kind = OUT_FEED, .mail = &m->mail});
}

void controller_ticket(struct controller *c, struct launch_mail *m)
{
    outbox_add(&c->outbox, (struct out){.kind = OUT_TICKET, .mail = &m->mail});
}

void controller_lease(struct controller *c, struct call *call)
{
    outbox_add(&c->outbox, (struct out){.kind = OUT_LEASE, .call = call_ref(call)});
}

/* ---- batches ---- */

static struct job **touched_jobs(const struct controller *c, size_t *num)
{
    *num = c->touched.len / sizeof(struct job *);
    return (struct job **)(void *)c->touched.data;
}

/* Memory as it was when `mark` jobs had been touched. Jobs touched before that keep what they have:
 * a mail that fails must not have changed them; see run_mail. */
static void put_back(struct controller *c, size_t mark)
{
    size_t num;
    struct job **list = touched_jobs(c, &num);
    for (size_t i = num; i > mark; i--) {
        struct job *j = list[i - 1];
        if (j->created) {
            remove_job(c, j);
        } else {
            j->row = j->before;
            j->touched = j->ack_due = false;
        }
    }
    c->touched.len = mark * sizeof(struct job *);
}

static int run_mail(struct controller *c, struct mail *m, struct error *err)
{
    struct store *s = c->options.store;
    size_t mark = outbox_mark(&c->outbox), num_touched;
    touched_jobs(c, &num_touched);
    if (store_savepoint(s, err) != 0) {
        return -1;
    }
    struct error why = {0};
    if (m->run(c, m, &why) == 0) {
        return store_release(s, err);
    }
    if (why.code == ERR_RESOURCE_EXHAUSTED || why.code == ERR_UNAVAILABLE ||
        why.code == ERR_INTERNAL || why.code == ERR_DATA_LOSS) {
        /* Perhaps halfway through a change of a job that earlier mail of this batch has changed
         * too: only the whole batch can be taken back. */
        *err = why;
        return -1;
    }
    if (store_undo(s, err) != 0) {
        return -1;
    }
    outbox_drop(&c->outbox, mark);
    put_back(c, num_touched);
    if (m->call) {
        controller_end_stream(c, m->call, why.code, "%s", why.text);
    } else {
        log_error("%s", why.text);
    }
    return 0;
}

static int flush_rows(struct controller *c, struct error *err)
{
    size_t num;
    struct job **list = touched_jobs(c, &num);
    for (size_t i = 0; i < num; i++) {
        struct job *j = list[i];
        if (memcmp(&j->row, &j->before, sizeof j->row) == 0) {
            continue;
        }
        if (store_job_update(c->options.store, &j->row, err) != 0) {
            return -1;
        }
        if (j->row.attempt.number &&
            memcmp(&j->row.attempt, &j->before.attempt, sizeof j->row.attempt) != 0 &&
            store_attempt_update(c->options.store, j->row.id, &j->row.attempt, err) != 0) {
            return -1;
        }
    }
    return 0;
}

static void send_acks(struct controller *c)
{
    size_t num;
    struct job **list = touched_jobs(c, &num);
    for (size_t i = 0; i < num; i++) {
        struct job *j = list[i];
        if (j->ack_due && j->worker) {
            WorkerDown *down = msg_new(&worker_down__descriptor);
            down->body_case = WORKER_DOWN__BODY_ACK;
            down->ack = msg_new(&ack__descriptor);
            MSG_SET(down->ack, seq, j->row.attempt.acked_seq);
            controller_send(c, j->worker, down);
        }
        j->ack_due = false;
    }
}

/* After a commit: forgets what the batch kept, and jobs that nothing can happen to any more. */
static void settle(struct controller *c)
{
    size_t num;
    struct job **list = touched_jobs(c, &num);
    for (size_t i = 0; i < num; i++) {
        struct job *j = list[i];
        j->touched = j->created = false;
        const struct attempt_row *a = &j->row.attempt;
        if (job_state_is_end(j->row.state) && (!a->number || a->condition == ATTEMPT_GONE)) {
            if (j->worker) {
                lease_remove(c->options.lease, j->worker);
            }
            remove_job(c, j);
        }
    }
    c->touched.len = 0;
}

static int run_batch(struct controller *c, struct mailbox_node *first, struct mailbox_node *end,
                     struct error *err)
{
    if (store_begin(c->options.store, err) != 0) {
        return -1;
    }
    for (struct mailbox_node *n = first; n != end; n = n->next) {
        if (run_mail(c, (struct mail *)n, err) != 0) {
            return -1;
        }
    }
    if (attempts_tick(c, err) != 0) {
        return -1;
    }
    if (c->schedule && attempts_schedule(c, err) != 0) {
        return -1;
    }
    c->schedule = false;
    if (flush_rows(c, err) != 0) {
        return -1;
    }
    send_acks(c);
    return store_commit(c->options.store, err);
}

/* The batch can't be committed: everything is as it was before it. Callers hear why; what came from
 * our own threads is tried again. */
static struct mailbox_node *give_up_batch(struct controller *c, struct mailbox_node *first,
                                          struct mailbox_node *end, const struct error *err)
{
    store_rollback(c->options.store);
    outbox_drop(&c->outbox, 0);
    put_back(c, 0);
    attempts_forget_pending(c);
    c->schedule = true;
    struct mailbox_node *kept = NULL, **last = &kept;
    while (first != end) {
        struct mailbox_node *next = first->next;
        struct mail *m = (struct mail *)first;
        if (m->call) {
            call_fail_error(m->call, err);
            mail_free(m);
        } else {
            *last = first;
            last = &first->next;
        }
        first = next;
    }
    *last = NULL;
    return kept;
}

static void work(struct controller *c, struct mailbox_node *chain)
{
    do {
        struct mailbox_node *end = chain;
        for (int i = 0; i < BATCH_MAX && end; i++) {
            end = end->next;
        }
        c->now_ms = clock_mono_ms();
        struct error err = {0};
        if (run_batch(c, chain, end, &err) != 0) {
            log_error("a batch was not committed: %s", err.text);
            struct mailbox_node *kept = give_up_batch(c, chain, end, &err);
            struct mailbox_node **last = &kept;
            while (*last) {
                last = &(*last)->next;
            }
            *last = end;
            c->backlog = kept;
            return;
        }
        outbox_run(&c->outbox, c->launching, c->options.feed, c->options.lease);
        settle(c);
        while (chain != end) {
            struct mailbox_node *next = chain->next;
            mail_free((struct mail *)chain);
            chain = next;
        }
    } while (chain);
}

static void *owner_main(void *arg)
{
    struct controller *c = arg;
    c->schedule = true;
    bool failed = false;
    while (!atomic_load(&c->stop)) {
        int64_t wait_ms = failed ? COMMIT_RETRY_MS : attempts_wait_ms(c);
        if (failed) {
            clock_sleep_ms(COMMIT_RETRY_MS);
            wait_ms = 0;
        }
        struct mailbox_node *chain = mailbox_take(c->box, c->schedule ? 0 : wait_ms);
        struct mailbox_node *backlog = c->backlog;
        c->backlog = NULL;
        if (backlog) {
            struct mailbox_node *last = backlog;
            while (last->next) {
                last = last->next;
            }
            last->next = chain;
            chain = backlog;
        }
        if (chain || c->schedule || attempts_wait_ms(c) == 0) {
            work(c, chain);
        }
        failed = c->backlog != NULL;
    }
    struct mailbox_node *rest = mailbox_take(c->box, 0);
    if (rest) {
        work(c, rest);
    }
    return NULL;
}

/* ---- life ---- */

static int load_all(struct controller *c, struct error *err)
{
    int64_t *ids;
    size_t num;
    if (store_job_live(c->options.store, &ids, &num, err) != 0) {
        return -1;
    }
    int rc = 0;
    for (size_t i = 0; i < num && rc == 0; i++) {
        struct job *j;
        rc = load_job(c, ids[i], &j, err);
    }
    free(ids);
    if (rc != 0) {
        return -1;
    }
    struct store_token *tokens;
    if (store_attempt_tokens(c->options.store, AUTH_ATTEMPTS_MAX, &tokens, &num, err) != 0) {
        return -1;
    }
    for (size_t i = num; i > 0; i--) {
        auth_add_attempt(c->options.auth, tokens[i - 1].job, tokens[i - 1].attempt,
                         tokens[i - 1].sha256);
    }
    free(tokens);
    return 0;
}

int controller_new(struct controller **out, const struct controller_options *options,
                   struct error *err)
{
    struct controller *c = calloc(1, sizeof *c);
    if (!c || mailbox_new(&c->box) != 0) {
        free(c);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    c->options = *options;
    *out = c;
    return 0;
}

struct mailbox *controller_mailbox(struct controller *c)
{
    return c->box;
}

int controller_start(struct controller *c, struct launching *launching, struct probing *probing,
                     struct error *err)
{
    c->launching = launching;
    c->probing = probing;
    c->now_ms = clock_mono_ms();
    if (load_all(c, err) != 0 || attempts_adopt(c, err) != 0) {
        return -1;
    }
    int rc = pthread_create(&c->thread, NULL, owner_main, c);
    if (rc != 0) {
        return error_errno(err, rc, "owner thread");
    }
    pthread_setname_np(c->thread, "owner");
    c->started = true;
    return 0;
}

void controller_stop(struct controller *c)
{
    if (c->started) {
        atomic_store(&c->stop, true);
        mailbox_wake(c->box);
        pthread_join(c->thread, NULL);
        c->started = false;
    }
}

void controller_free(struct controller *c)
{
    if (!c) {
        return;
    }
    controller_stop(c);
    mail_free_chain(c->backlog);
    mail_free_chain(mailbox_take(c->box, 0));
    mailbox_free(c->box);
    outbox_drop(&c->outbox, 0);
    buf_free(&c->outbox.entries);
    buf_free(&c->touched);
    for (size_t i = 0; i < c->num_jobs; i++) {
        free_job(c->jobs[i]);
    }
    free(c->jobs);
    store_close(c->options.store);
    free(c);
}
