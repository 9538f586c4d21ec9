/* base/clock, base/log, base/mailbox and server/worker as the simulation has them: its own time, no
 * threads. They take the place of the real ones when the simulator is linked. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "server/worker.h"
#include "tests/sim/sim_server.h"

/* ---- clock ---- */

int64_t clock_mono_ms(void)
{
    return sim_server_mono_ms(sim_current());
}

int64_t clock_mono_ns(void)
{
    return clock_mono_ms() * 1000000;
}

int64_t clock_thread_ms(void)
{
    return clock_mono_ms();
}

int64_t clock_wall_us(void)
{
    const struct sim *s = sim_current();
    return s->server->wall_0_us + s->now_us;
}

void clock_sleep_ms(int64_t ms)
{
    (void)ms;
    ASSERT(false && "nothing in the simulation may sleep");
}

/* ---- log ---- */

void log_init(const char *name)
{
    (void)name;
}

void log_write(enum log_level level, const char *fmt, ...)
{
    struct sim *s = sim_current();
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (s && level >= LOG_INFO_LEVEL) {
        sim_trace(s->now_us, "  log: %s", text);
    }
}

/* ---- mailbox ---- */

struct mailbox {
    struct mailbox_node *first, **last;
};

int mailbox_new(struct mailbox **out)
{
    struct mailbox *m = calloc(1, sizeof *m);
    ASSERT(m);
    m->last = &m->first;
    *out = m;
    return 0;
}

void mailbox_free(struct mailbox *m)
{
    free(m);
}

static void post_now(struct mailbox *m, struct mailbox_node *node)
{
    node->next = NULL;
    *m->last = node;
    m->last = &node->next;
}

struct mailbox_node *mailbox_take(struct mailbox *m, int64_t timeout_ms)
{
    (void)timeout_ms;
    struct mailbox_node *first = m->first;
    m->first = NULL;
    m->last = &m->first;
    return first;
}

void mailbox_wake(struct mailbox *m)
{
    (void)m;
}

int mailbox_fd(const struct mailbox *m)
{
    (void)m;
    return -1;
}

/* ---- worker ---- */

struct worker {
    int refs;
    bool ended;
    const char *name;
    void *owner;
    int64_t (*idle)(void *owner);
    struct mailbox box;
    struct mail *kept;
    int64_t wake_id;
};

/* A worker's answers are on their way for a while. */
static struct worker *running;

static void drop_mail(struct sim *s, void *arg, int64_t generation)
{
    (void)s;
    (void)generation;
    mail_free(arg);
}

static void arrive(struct sim *s, void *arg, int64_t generation)
{
    struct mail *m = arg;
    if (!s->server->up || s->server->generation != generation) {
        mail_free(m);
        return;
    }
    post_now(controller_mailbox(s->server->app.controller), &m->node);
}

void mailbox_post(struct mailbox *m, struct mailbox_node *node)
{
    struct sim *s = sim_current();
    if (running) {
        sim_after(s, sim_rng_delay(&s->rng, 20, s->calm ? 2000 : 300000), arrive, drop_mail, node,
                  s->server->generation);
    } else {
        post_now(m, node);
    }
}

static void release(struct worker *w)
{
    if (--w->refs == 0) {
        free(w);
    }
}

static void drop_turn(struct sim *s, void *arg, int64_t id)
{
    (void)s;
    (void)id;
    release(arg);
}

static void take_turn(struct sim *s, void *arg, int64_t id);

static void wake_after(struct worker *w, int64_t delay_us)
{
    w->refs++;
    sim_after(sim_current(), delay_us, take_turn, drop_turn, w, ++w->wake_id);
}

static void run_one(struct sim *s, struct worker *w, struct mail *m)
{
    struct error err = {0};
    w->kept = NULL;
    if (m->run(w->owner, m, &err) != 0 && m->call) {
        call_fail_error(m->call, &err);
    }
    if (w->kept != m) {
        mail_free(m);
    } else if (strcmp(w->name, "launch") == 0) {
        sim_launcher_watch(s, m);
    }
}

static void take_turn(struct sim *s, void *arg, int64_t id)
{
    struct worker *w = arg;
    if (!w->ended && id == w->wake_id) {
        running = w;
        struct mailbox_node *chain = mailbox_take(&w->box, 0);
        while (chain) {
            struct mailbox_node *next = chain->next;
            run_one(s, w, (struct mail *)chain);
            chain = next;
        }
        int64_t wait_ms = w->idle ? w->idle(w->owner) : -1;
        running = NULL;
        if (wait_ms >= 0) {
            wake_after(w, 1000 * wait_ms + 10);
        }
    }
    release(w);
}

int worker_new(struct worker **out, const char *name, void *owner, int64_t (*idle)(void *owner),
               struct error *err)
{
    (void)err;
    struct worker *w = calloc(1, sizeof *w);
    ASSERT(w);
    *w = (struct worker){.refs = 1, .name = name, .owner = owner, .idle = idle};
    w->box.last = &w->box.first;
    *out = w;
    return 0;
}

void worker_post(struct worker *w, struct mail *m)
{
    struct sim *s = sim_current();
    post_now(&w->box, &m->node);
    wake_after(w, sim_rng_delay(&s->rng, 20, s->calm ? 2000 : 100000));
}

void worker_keep(struct worker *w, struct mail *m)
{
    w->kept = m;
}

void worker_free(struct worker *w)
{
    if (w) {
        w->ended = true;
        mail_free_chain(mailbox_take(&w->box, 0));
        release(w);
    }
}
