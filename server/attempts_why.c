/* Why a job waits, for people: what holds it up, who, until when. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/attempts_private.h"
#include "server/attempts_view.h"
#include "server/dependencies.h"
#include "server/msg.h"
#include "server/out_of_use.h"

static void add_reason(WhyReply *reply, const char *words)
{
    char *text;
    msg_printf(&text, "%s", words);
    msg_push(&reply->reasons, &reply->n_reasons, text);
}

static void add_holder(WhyReply *reply, int64_t id)
{
    size_t n = reply->n_holders;
    int64_t *list = realloc(reply->holders, (n + 1) * sizeof *list);
    ASSERT(list);
    list[n] = id;
    reply->holders = list;
    reply->n_holders = n + 1;
}

static void set_start(struct controller *c, WhyReply *reply, int64_t start_ms)
{
    int64_t wait_ms = start_ms - controller_now_ms(c);
    if (start_ms != SCHED_NEVER && wait_ms < INT64_MAX / 2000) {
        MSG_SET(reply, may_start_us, controller_wall_us(c) + 1000 * (wait_ms > 0 ? wait_ms : 0));
    }
}

/* What keeps it from being looked at by the scheduler at all. */
static bool explain_unready(struct controller *c, struct job *j, WhyReply *reply)
{
    const struct attempt_row *a = &j->row.attempt;
    int64_t wait_ms = j->not_before_ms - controller_now_ms(c);
    char text[512];
    if (wait_ms > 0) {
        snprintf(text, sizeof text, "waits %.1f s before restart %d", (double)wait_ms / 1000,
                 j->row.restarts);
        set_start(c, reply, j->not_before_ms);
    } else if (a->number && a->condition != ATTEMPT_GONE) {
        snprintf(text, sizeof text, "waits until the processes of attempt %d are gone%s%s",
                 a->number, *j->stuck ? ": " : "", j->stuck);
    } else if (!controller_no_room(c, text, sizeof text)) {
        struct dependency dependency;
        struct error err;
        if (dependencies_look(c, j, &dependency, &err) != 0) {
            snprintf(text, sizeof text, "%.400s", err.text);
        } else if (dependency.state == DEPENDENCY_MET) {
            return false;
        } else {
            snprintf(text, sizeof text, "%s", dependency.words);
            add_holder(reply, dependency.id);
        }
    }
    add_reason(reply, text);
    return true;
}

static void explain_place(struct controller *c, const struct attempts_view *v, size_t i,
                          WhyReply *reply)
{
    struct sched_reason reason = {.may_start_ms = SCHED_NEVER};
    char words[480];
    sched_why(&v->view, i, &reason);
    add_reason(reply, reason.words);
    if (out_of_use_words(controller_topology(c), &v->jobs[i].place, words, sizeof words)) {
        add_reason(reply, words);
    }
    for (int32_t k = 0; k < reason.num_holders; k++) {
        add_holder(reply, reason.holders[k]);
    }
    set_start(c, reply, reason.may_start_ms);
    MSG_SET(reply, place, reason.place);
}

int attempts_why(struct controller *c, struct job *j, const char *tenant, WhyReply *reply,
                 struct error *err)
{
    struct attempts_view v;
    if (explain_unready(c, j, reply)) {
        return 0;
    }
    if (!controller_may_explain(c)) {
        add_reason(reply, "waits in the queue; what for takes long to find out, and the server has "
                          "been asked a lot: ask again in a while");
        return 0;
    }
    if (attempts_view_make(c, tenant, &v, err) != 0) {
        return -1;
    }
    for (size_t i = 0; i < v.view.num_jobs; i++) {
        if (v.job_of[i] == j) {
            explain_place(c, &v, i, reply);
        }
    }
    attempts_view_free(&v);
    controller_explained(c);
    return 0;
}
