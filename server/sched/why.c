/* Why a job doesn't start: read off a pass over the same view. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/sched/sched_private.h"

static const char *plural(int64_t num)
{
    return num == 1 ? "" : "s";
}

/* "job 7", "another tenant's job". */
static void name_job(const struct sched_view *v, size_t job, char *out, size_t size)
{
    if (v->jobs[job].hidden) {
        snprintf(out, size, "another tenant's job");
    } else {
        snprintf(out, size, "job %" PRId64, v->jobs[job].id);
    }
}

static void add_holder(struct sched_reason *out, int64_t id)
{
    for (int32_t i = 0; i < out->num_holders; i++) {
        if (out->holders[i] == id) {
            return;
        }
    }
    if (out->num_holders < (int32_t)(sizeof out->holders / sizeof *out->holders)) {
        out->holders[out->num_holders++] = id;
    }
}

static void add_job(const struct sched *s, size_t job, struct sched_reason *out)
{
    const struct sched_job *j = &s->v->jobs[job];
    add_holder(out, j->hidden ? -1 : j->id);
}

/* Who has the devices that the job is to get; without a reservation, any that it could use. */
static void list_holders(const struct sched *s, size_t job, struct sched_reason *out)
{
    const struct sched_view *v = s->v;
    const struct want *w = want_table_get(s->wants, s->seats[job].want);
    int32_t own = s->seats[job].reservation;
    for (int32_t d = 0; d < s->f->num_devices; d++) {
        bool counts = own >= 0 ? s->reserved[d] >> own & 1 : want_suits(w, d);
        counts = s->seats[job].outcome == OUTCOME_CLAIMS ? s->claimant[d] == (int32_t)job : counts;
        if (!counts) {
            continue;
        }
        if (s->holder[d] >= 0) {
            const struct sched_run *r = &v->runs[s->holder[d]];
            add_holder(out, r->hidden ? -1 : r->id);
        } else if (s->holder[d] <= HOLDER_STARTED) {
            add_job(s, s->decisions[HOLDER_STARTED - s->holder[d]].job, out);
        } else if (s->claimant[d] != NO_JOB && s->claimant[d] != (int32_t)job) {
            add_job(s, (size_t)s->claimant[d], out);
        }
    }
}

static void say_limit(const struct sched *s, size_t job, struct sched_reason *out)
{
    const struct sched_job *j = &s->v->jobs[job];
    const struct sched_tenant *t = &s->v->tenants[j->tenant];
    int64_t held = share_with(s, job) - j->num_devices;
    if (j->num_devices > t->max) {
        snprintf(out->words, sizeof out->words,
                 "needs %" PRId32 " device%s, tenant %s may hold at most %" PRId64, j->num_devices,
                 plural(j->num_devices), t->name, t->max);
        return;
    }
    int n = snprintf(out->words, sizeof out->words,
                     "needs %" PRId32 " device%s, tenant %s holds %" PRId64 " of at most %" PRId64,
                     j->num_devices, plural(j->num_devices), t->name, held, t->max);
    if (held > t->max && n > 0 && (size_t)n < sizeof out->words) {
        snprintf(out->words + n, sizeof out->words - (size_t)n, " (over by %" PRId64 ")",
                 held - t->max);
    }
    for (size_t i = 0; i < s->v->num_runs; i++) {
        if (s->v->runs[i].tenant == j->tenant) {
            add_holder(out, s->v->runs[i].hidden ? -1 : s->v->runs[i].id);
        }
    }
}

static void say_claim(const struct sched *s, size_t job, struct sched_reason *out)
{
    int32_t num = 0, held = 0;
    for (int32_t d = 0; d < s->f->num_devices; d++) {
        if (s->claimant[d] == (int32_t)job) {
            num++;
            held += s->holder[d] >= 0;
        }
    }
    out->may_start_ms = sched_add_ms(s->v->now_ms, s->v->options->grace_ms);
    list_holders(s, job, out);
    snprintf(out->words, sizeof out->words,
             "%" PRId32 " of the %" PRId32 " device%s kept for it %s still held by jobs that stop "
             "for it",
             held, num, plural(num), held == 1 ? "is" : "are");
}

/* The devices would do, but are kept for one in front of it. */
static bool say_reserved(struct sched *s, size_t job, struct sched_reason *out)
{
    const struct sched_job *j = &s->v->jobs[job];
    int32_t first = -1;
    for (int32_t i = 0; i < s->num_reservations && first < 0; i++) {
        bool is_before = s->seats[s->reservations[i].job].place < s->seats[job].place;
        for (int32_t k = 0; is_before && k < s->reservations[i].num && first < 0; k++) {
            int32_t d = s->reservations[i].devices[k];
            first = want_suits(want_table_get(s->wants, s->seats[job].want), d) ? i : -1;
        }
    }
    if (first < 0) {
        return false;
    }
    const struct reservation *r = &s->reservations[first];
    char who[64];
    name_job(s->v, r->job, who, sizeof who);
    add_holder(out, s->v->jobs[r->job].hidden ? -1 : s->v->jobs[r->job].id);
    snprintf(out->words, sizeof out->words,
             "waits behind %s, for which %" PRId32 " device%s reserved%s", who, r->num,
             r->num == 1 ? " is" : "s are",
             j->limit_ms > 0 || r->shadow_ms == SCHED_NEVER
                 ? ""
                 : "; a time limit could let it start before");
    return true;
}

static void add_drained(const struct sched *s, size_t job, struct sched_reason *out)
{
    const struct want *w = want_table_get(s->wants, s->seats[job].want);
    int32_t num = 0;
    for (int32_t d = 0; s->v->drained && d < s->f->num_devices; d++) {
        num += s->v->drained[d] && want_suits(w, d);
    }
    size_t len = strlen(out->words);
    if (num > 0) {
        snprintf(out->words + len, sizeof out->words - len, " (%" PRId32 " %s drained)", num,
                 num == 1 ? "is" : "are");
    }
}

/* When there will be room for it, if nobody else takes that who has no reservation in front of it.
 */
static int64_t may_start_ms(struct sched *s, size_t job)
{
    int32_t own = s->seats[job].reservation;
    if (own >= 0) {
        return s->reservations[own].shadow_ms;
    }
    uint64_t mask = 0;
    for (int32_t i = 0; i < s->num_reservations; i++) {
        bool is_before = s->seats[s->reservations[i].job].place < s->seats[job].place;
        mask |= (uint64_t)is_before << i;
    }
    size_t moment = coming_moment(s, job, mask & reserve_later(s, job));
    return moment > 0 && moment != SIZE_MAX ? s->coming[moment - 1].end_ms : SCHED_NEVER;
}

static void say_waits(struct sched *s, size_t job, struct sched_reason *out)
{
    const struct sched_job *j = &s->v->jobs[job];
    struct place_lack lack = {0};
    /* What it sees: what is free, whoever it is kept for, but for claims. */
    free_map_set(s->whatif, s->maps[0].map);
    enum place_result result = place_find(s->whatif, &j->place, s->scratch, NULL, &lack);
    out->may_start_ms = may_start_ms(s, job);
    if (result == PLACE_OK) {
        if (!say_reserved(s, job, out)) {
            snprintf(out->words, sizeof out->words, "waits for the queue's next turn");
        }
        return;
    }
    place_lack_words(&lack, result, out->words, sizeof out->words);
    add_drained(s, job, out);
    list_holders(s, job, out);
}

void sched_explain(struct sched *s, const struct sched_view *v, size_t job,
                   struct sched_reason *out)
{
    ASSERT(v->fabric == s->f && job < v->num_jobs);
    s->v = v;
    *out = (struct sched_reason){.may_start_ms = SCHED_NEVER, .place = s->seats[job].place + 1};
    const struct sched_job *j = &s->v->jobs[job];
    switch (s->seats[job].outcome) {
    case OUTCOME_UNREADY:
        snprintf(out->words, sizeof out->words,
                 "isn't ready: it waits for its pause after a failure, for another job or for the "
                 "end of its last attempt");
        return;
    case OUTCOME_STARTS:
        out->may_start_ms = s->v->now_ms;
        snprintf(out->words, sizeof out->words, "is about to start");
        return;
    case OUTCOME_LIMIT:
        say_limit(s, job, out);
        return;
    case OUTCOME_CLAIMS:
        say_claim(s, job, out);
        return;
    case OUTCOME_WAITS:
        break;
    }
    if (!sched_is_sane(s->f, j)) {
        snprintf(out->words, sizeof out->words,
                 "needs %" PRId32 " devices, the cluster has %" PRId32, j->num_devices,
                 s->f->num_devices);
        return;
    }
    say_waits(s, job, out);
}

void sched_why(const struct sched_view *v, size_t job, struct sched_reason *out)
{
    struct sched *s;
    ASSERT(job < v->num_jobs && sched_new(&s, v->fabric, NULL) == 0);
    const struct sched_decision *decisions;
    sched_pass(s, v, &decisions);
    sched_explain(s, v, job, out);
    sched_free(s);
}
