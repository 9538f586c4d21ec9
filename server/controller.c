#include "server/controller.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "server/attempts.h"
#include "server/controller_private.h"
#include "server/job.h"
#include "server/msg.h"
#include "server/sched/sched.h"

#define BATCH_MAX 1000
/* After a commit that failed (a full disk, most likely). */
#define COMMIT_RETRY_MS 500

/* ---- batches ---- */

static struct job **touched_jobs(const struct controller *c, size_t *num)
{
    *num = c->touched.len / sizeof(struct job *);
    return (struct job **)(void *)c->touched.data;
}

/* Nothing can happen to it by itself any more; it need not be in memory. */
static bool is_over(const struct job *j)
{
    const struct attempt_row *a = &j->row.attempt;
    return job_state_is_end(j->row.state) && (!a->number || a->condition == ATTEMPT_GONE);
}

/* Memory as it was when `mark` jobs had been touched and tenants had that mark. Jobs touched before
 * that keep what they have: a mail that fails must not have changed them; see run_mail. */
static void put_back(struct controller *c, size_t mark, size_t tenants)
{
    tenants_put_back(c->tenants, tenants);
    c->bad_ends++; /* a resume of one may have been taken back */
    size_t num;
    struct job **list = touched_jobs(c, &num);
    for (size_t i = num; i > mark; i--) {
        struct job *j = list[i - 1];
        if (j->created) {
            controller_remove(c, j);
        } else {
            j->row = j->before;
            held_set_put_back(&j->devices);
            held_set_put_back(&j->claim);
            j->since_ms = j->since_before_ms;
            j->moved_ms = j->moved_before_ms;
            j->attempt_ms = j->attempt_before_ms;
            j->queued_ms = j->queued_before_ms;
            j->not_before_ms = j->not_before_before_ms;
            j->next_kill_ms = j->next_kill_before_ms;
            j->began_ms = j->began_was_ms;
            j->began_before = j->began_before_was;
            memcpy(j->stuck, j->stuck_before, sizeof j->stuck);
            j->touched = j->ack_due = false;
            if (is_over(j)) {
                controller_remove(c, j); /* brought back for what has failed */
            }
        }
    }
    c->touched.len = mark * sizeof(struct job *);
}

static int run_mail(struct controller *c, struct mail *m, struct error *err)
{
    struct store *s = c->options.store;
    size_t mark = outbox_mark(&c->outbox), tenants = tenants_mark(c->tenants), num_touched;
    touched_jobs(c, &num_touched);
    if (store_savepoint(s, err) != 0) {
        return -1;
    }
    struct error why = {0};
    if (m->run(c, m, &why) == 0) {
        return store_release(s, err);
    }
    if (store_has_failed(s)) {
        /* Perhaps halfway through a change of a job that earlier mail of this batch has changed
         * too: only the whole batch can be taken back. */
        *err = why;
        return -1;
    }
    if (store_undo(s, err) != 0) {
        return -1;
    }
    outbox_drop(&c->outbox, mark);
    put_back(c, num_touched, tenants);
    if (m->call) {
        controller_end_stream(c, m->call, why.code, "%s", why.text);
    } else {
        log_error("%s", why.text);
    }
    return 0;
}

static int flush_claim(struct controller *c, const struct job *j, struct error *err)
{
    struct buf text = {0};
    fabric_print_set(c->options.topology->fabric, j->claim.now, &text);
    int rc = store_job_set_claim(c->options.store, j->row.id, text.data ? text.data : "", err);
    buf_free(&text);
    return rc;
}

static int flush_rows(struct controller *c, struct error *err)
{
    size_t num;
    struct job **list = touched_jobs(c, &num);
    for (size_t i = 0; i < num; i++) {
        struct job *j = list[i];
        bool writes = held_set_changed(&j->claim) || j->claim_stale;
        if (writes && flush_claim(c, j, err) != 0) {
            return -1;
        }
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
            MSG_SET(down, attempt, j->row.attempt.number);
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
    tenants_keep(c->tenants);
    size_t num;
    struct job **list = touched_jobs(c, &num);
    for (size_t i = 0; i < num; i++) {
        struct job *j = list[i];
        j->touched = j->created = j->claim_stale = false;
        held_set_settle(&j->devices);
        held_set_settle(&j->claim);
        controller_set_active(c, j);
        if (is_over(j)) {
            if (j->worker) {
                controller_lease(c, j->worker, false);
            }
            controller_remove(c, j);
        }
    }
    c->touched.len = 0;
    drains_settle(c->options.topology->drains);
}

/* A pass, if something has happened or it is time. */
static int schedule(struct controller *c, struct error *err)
{
    const struct world *w = &c->options.world;
    struct attempts_pass pass;
    if ((!c->schedule && c->now_ms < c->sched_due_ms) || c->now_ms < c->sched_rest_ms) {
        return 0;
    }
    int64_t began_ms = w->busy_ms(w->ctx);
    if (attempts_schedule(c, &pass, err) != 0) {
        return -1;
    }
    c->schedule = pass.again;
    c->sched_due_ms = pass.next_ms;
    int64_t took_ms = w->busy_ms(w->ctx) - began_ms;
    c->sched_rest_ms = controller_rest_until(took_ms, w->mono_ms(w->ctx));
    return 0;
}

static int run_batch(struct controller *c, struct mailbox_node *first, struct mailbox_node *end,
                     struct error *err)
{
    if (store_begin(c->options.store, err) != 0) {
        return -1;
    }
    const struct world *w = &c->options.world;
    for (struct mailbox_node *n = first; n != end; n = n->next) {
        if (w->runs) {
            w->runs(w->ctx, (const struct mail *)n);
        }
        if (run_mail(c, (struct mail *)n, err) != 0) {
            return -1;
        }
    }
    if (w->runs) {
        w->runs(w->ctx, NULL);
    }
    if (attempts_tick(c, err) != 0) {
        return -1;
    }
    if (schedule(c, err) != 0) {
        return -1;
    }
    if (flush_rows(c, err) != 0) {
        return -1;
    }
    send_acks(c);
    return store_commit(c->options.store, err);
}

/* The batch can't be committed: everything is as it was before it. Callers hear why; what came from
 * our own threads, and news of a call without a message (that it is over), is tried again. */
static struct mailbox_node *give_up_batch(struct controller *c, struct mailbox_node *first,
                                          struct mailbox_node *end, const struct error *err)
{
    store_rollback(c->options.store);
    outbox_drop(&c->outbox, 0);
    put_back(c, 0, 0);
    drains_put_back(c->options.topology->drains);
    attempts_forget_pending(c);
    sched_reset(c->sched); /* what it decided has not happened */
    c->schedule = true;
    struct mailbox_node *kept = NULL, **last = &kept;
    while (first != end) {
        struct mailbox_node *next = first->next;
        struct mail *m = (struct mail *)first;
        if (m->call && m->message) {
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

static struct mailbox_node *chained(struct mailbox_node *first, struct mailbox_node *rest)
{
    struct mailbox_node **last = &first;
    while (*last) {
        last = &(*last)->next;
    }
    *last = rest;
    return first;
}

/* False: a batch could not be committed; it and what is behind it wait. */
static bool run_batches(struct controller *c, struct mailbox_node *chain)
{
    do {
        struct mailbox_node *end = chain;
        for (int i = 0; i < BATCH_MAX && end; i++) {
            end = end->next;
        }
        c->now_ms = c->options.world.mono_ms(c->options.world.ctx);
        struct error err = {0};
        if (run_batch(c, chain, end, &err) != 0) {
            log_error("a batch was not committed: %s", err.text);
            c->backlog = chained(give_up_batch(c, chain, end, &err), end);
            c->retry_ms = c->options.world.mono_ms(c->options.world.ctx) + COMMIT_RETRY_MS;
            return false;
        }
        c->retry_ms = 0;
        settle(c);
        outbox_run(&c->outbox, &c->options.world);
        while (chain != end) {
            struct mailbox_node *next = chain->next;
            mail_free((struct mail *)chain);
            chain = next;
        }
    } while (chain);
    return true;
}

void controller_step(struct controller *c, struct mailbox_node *chain)
{
    const struct world *w = &c->options.world;
    bool rests = c->retry_ms && w->mono_ms(w->ctx) < c->retry_ms;
    bool is_idle = !chain && !c->backlog && controller_wait_ms(c) != 0;
    if (!rests && !is_idle && w->begins) {
        w->begins(w->ctx, chain);
    }
    chain = chained(c->backlog, chain);
    c->backlog = NULL;
    if (rests) {
        c->backlog = chain;
    } else if (!is_idle) {
        bool committed = run_batches(c, chain);
        if (w->ends) {
            w->ends(w->ctx, committed);
        }
    }
}

int64_t controller_wait_ms(struct controller *c)
{
    if (c->retry_ms) {
        int64_t left_ms = c->retry_ms - c->options.world.mono_ms(c->options.world.ctx);
        return left_ms > 0 ? left_ms : 0;
    }
    if (c->backlog) {
        return 0;
    }
    int64_t wait_ms = attempts_wait_ms(c), now_ms = c->options.world.mono_ms(c->options.world.ctx);
    int64_t due_ms = c->schedule ? 0 : c->sched_due_ms;
    due_ms = due_ms > c->sched_rest_ms ? due_ms : c->sched_rest_ms;
    if (due_ms == INT64_MAX || (wait_ms >= 0 && wait_ms <= due_ms - now_ms)) {
        return wait_ms;
    }
    return due_ms > now_ms ? due_ms - now_ms : 0;
}

/* ---- life ---- */

static int load_drains(struct controller *c, struct error *err)
{
    struct drain_row *rows;
    size_t num;
    if (store_drain_list(c->options.store, &rows, &num, err) != 0) {
        return -1;
    }
    drains_load(c->options.topology->drains, rows, num);
    free(rows);
    return 0;
}

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
        rc = controller_load(c, ids[i], &j, err);
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
        c->options.world.add_token(c->options.world.ctx, tokens[i - 1].job, tokens[i - 1].attempt,
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
    c->bad_ends = 1;
    if (sched_new(&c->sched, c->options.topology->fabric, err) != 0) {
        mailbox_free(c->box);
        free(c);
        return -1;
    }
    c->tenants = tenants_new(controller_scheduler(c)->fair_share_half_life_h);
    *out = c;
    return 0;
}

struct mailbox *controller_mailbox(struct controller *c)
{
    return c->box;
}

int controller_open(struct controller *c, struct error *err)
{
    const struct world *w = &c->options.world;
    if (w->begins) {
        w->begins(w->ctx, NULL);
    }
    c->now_ms = w->mono_ms(w->ctx);
    c->schedule = true;
    int rc =
        tenants_open(c->tenants, c->options.store, c->now_ms, controller_wall_us(c), err) != 0 ||
                load_drains(c, err) != 0 || load_all(c, err) != 0
            ? -1
            : attempts_adopt(c, err);
    tenants_keep(c->tenants);
    if (w->ends) {
        w->ends(w->ctx, rc == 0);
    }
    return rc;
}

void controller_free(struct controller *c)
{
    if (!c) {
        return;
    }
    mail_free_chain(c->backlog);
    mail_free_chain(mailbox_take(c->box, 0));
    mailbox_free(c->box);
    outbox_drop(&c->outbox, 0);
    buf_free(&c->outbox.entries);
    buf_free(&c->touched);
    buf_free(&c->active);
    for (size_t i = 0; i < c->num_jobs; i++) {
        controller_free_job(c->jobs[i]);
    }
    free(c->jobs);
    tenants_free(c->tenants);
    sched_free(c->sched);
    topology_free(c->options.topology);
    store_close(c->options.store);
    free(c);
}
