#include "server/sched/sched.h"

#include <stdlib.h>
#include <string.h>

#include "server/sched/sched_private.h"

void *sched_must(void *memory)
{
    ASSERT(memory);
    return memory;
}

int64_t sched_add_ms(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? SCHED_NEVER : sum;
}

void sched_wake(struct sched *s, int64_t at_ms)
{
    s->next_ms = at_ms < s->next_ms ? at_ms : s->next_ms;
}

int sched_new(struct sched **out, const struct fabric *f, struct error *err)
{
    (void)err;
    struct sched *s = sched_must(calloc(1, sizeof *s));
    size_t n = (size_t)f->num_devices + 1;
    s->f = f;
    s->wants = want_table_new(f);
    room_init(&s->room, f);
    s->all = sched_must(free_map_new(f));
    s->none = sched_must(free_map_copy(s->all));
    for (int32_t d = 0; d < f->num_devices; d++) {
        free_map_take(s->none, d);
    }
    s->whatif = sched_must(free_map_copy(s->all));
    s->holder = sched_must(malloc(n * sizeof *s->holder));
    s->claimant = sched_must(malloc(n * sizeof *s->claimant));
    s->reserved = sched_must(malloc(n * sizeof *s->reserved));
    s->covered = sched_must(malloc((n / 64 + 1) * sizeof *s->covered));
    s->possible = sched_must(malloc((n / 64 + 1) * sizeof *s->possible));
    s->kept[0] = sched_must(malloc((n / 64 + 1) * sizeof *s->kept[0]));
    s->kept[1] = sched_must(malloc((n / 64 + 1) * sizeof *s->kept[1]));
    s->claimed = sched_must(malloc((n / 64 + 1) * sizeof *s->claimed));
    s->words = sched_must(malloc((n / 64 + 1) * sizeof *s->words));
    s->scratch = sched_must(malloc(n * sizeof *s->scratch));
    s->next_ms = SCHED_NEVER;
    *out = s;
    return 0;
}

void sched_forget_pass(struct sched *s)
{
    for (size_t i = 0; i < s->num_decisions; i++) {
        free(s->decisions[i].devices);
        device_set_free(s->decisions[i].set);
    }
    s->num_decisions = 0;
    for (int32_t i = 0; i < s->num_reservations; i++) {
        free(s->reservations[i].devices);
    }
    s->num_reservations = 0;
    s->owed_mask = 0;
    s->num_preemptors = 0;
    s->looks = 0;
    s->has_leftovers = false;
    s->next_ms = SCHED_NEVER;
}

void sched_free(struct sched *s)
{
    if (!s) {
        return;
    }
    sched_forget_pass(s);
    want_table_free(s->wants);
    room_deinit(&s->room);
    free_map_free(s->all);
    free_map_free(s->none);
    free_map_free(s->whatif);
    for (int32_t i = 0; i < SCHED_MAX_MAPS; i++) {
        free_map_free(s->maps[i].map);
        free(s->maps[i].bits);
    }
    free(s->holder);
    free(s->claimant);
    free(s->reserved);
    free(s->covered);
    free(s->possible);
    free(s->kept[0]);
    free(s->kept[1]);
    free(s->claimed);
    free(s->words);
    free(s->scratch);
    free(s->seats);
    free(s->order);
    free(s->stops);
    free(s->borrowed);
    free(s->victims);
    free(s->coming);
    free(s->held);
    free(s->decisions);
    free(s);
}

void sched_reset(struct sched *s)
{
    s->has_passed = false;
    want_table_clear(s->wants);
}

int64_t sched_next_ms(const struct sched *s)
{
    return s->next_ms;
}

struct sched_decision *sched_decide(struct sched *s, enum sched_kind kind, size_t job)
{
    if (s->num_decisions == s->decision_cap) {
        s->decision_cap = s->decision_cap ? s->decision_cap * 2 : 64;
        s->decisions = sched_must(realloc(s->decisions, s->decision_cap * sizeof *s->decisions));
    }
    struct sched_decision *d = &s->decisions[s->num_decisions++];
    *d = (struct sched_decision){.kind = kind, .job = job};
    return d;
}

bool sched_may_use(const struct sched *s, int32_t device, size_t job, uint64_t mask)
{
    int32_t claimant = s->claimant[device];
    return (claimant == NO_JOB || (size_t)claimant == job) && !(s->reserved[device] & mask) &&
           !(s->v->drained && s->v->drained[device]);
}

/* A size that place_find may be asked for. */
bool sched_is_sane(const struct fabric *f, const struct sched_job *j)
{
    const struct place_request *r = &j->place;
    int64_t num = 1;
    int32_t axes[] = {r->data, r->pipeline, r->context, r->tensor};
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        if (axes[i] < 1 || __builtin_mul_overflow(num, axes[i], &num)) {
            return false;
        }
    }
    return num == j->num_devices && num <= f->num_devices;
}

void sched_set_claimant(struct sched *s, int32_t device, int32_t job)
{
    uint64_t bit = (uint64_t)1 << (device % 64);
    s->claimant[device] = job;
    s->claimed[device / 64] &= ~bit;
    s->claimed[device / 64] |= job == NO_JOB ? 0 : bit;
}

void sched_forget_claim(struct sched *s, size_t job)
{
    const struct device_set *claim = s->v->jobs[job].claim;
    for (int32_t i = 0; s->seats[job].claims && i < claim->num; i++) {
        sched_set_claimant(s, claim->device[i], NO_JOB);
        s->has_leftovers = s->has_leftovers || s->holder[claim->device[i]] > HOLDER_STARTED;
    }
    if (s->seats[job].claims) { /* others may use its devices in the next pass */
        sched_wake(s, sched_add_ms(s->v->now_ms, SCHED_SOON_MS));
    }
    s->seats[job].claims = false;
    s->seats[job].claimed = 0;
}

void sched_start(struct sched *s, size_t job, const int32_t *devices)
{
    const struct sched_job *j = &s->v->jobs[job];
    struct seat *seat = &s->seats[job];
    struct sched_decision *d = sched_decide(s, SCHED_START, job);
    size_t bytes = (size_t)j->num_devices * sizeof *d->devices;
    d->devices = sched_must(malloc(bytes));
    memcpy(d->devices, devices, bytes);
    d->set = device_set_new(devices, j->num_devices);
    d->borrowed = s->v->tenants[j->tenant].quota >= 0 && !share_within_quota(s, job);
    uint64_t passed = reserve_later(s, job), reserved = 0;
    for (int32_t i = 0; i < j->num_devices; i++) {
        open_map_take(s, devices[i]);
        s->holder[devices[i]] = HOLDER_STARTED - (int32_t)(s->num_decisions - 1);
        /* What a claim keeps was its own before it was anybody's reservation. */
        reserved |= s->claimant[devices[i]] == (int32_t)job ? 0 : s->reserved[devices[i]];
    }
    reserved &= passed;
    if (reserved) {
        d->backfills = s->v->jobs[s->reservations[__builtin_ctzll(reserved)].job].id;
    }
    s->held[j->tenant] += j->num_devices - seat->claimed;
    seat->outcome = OUTCOME_STARTS;
    sched_forget_claim(s, job);
}

/* Remembers for how many there is room, where that is too few. */
static bool is_too_few(struct sched *s, struct want *w, const struct open_map *m, int32_t num)
{
    room_start(&s->room, w, m->bits);
    if (room_size(&s->room) < num) {
        want_failed(w, m->mask, room_size(&s->room) + 1);
        return true;
    }
    return false;
}

static bool start_on_free(struct sched *s, size_t job, uint64_t mask)
{
    const struct sched_job *j = &s->v->jobs[job];
    struct want *w = want_table_get(s->wants, s->seats[job].want);
    if (!sched_is_sane(s->f, j) || want_has_failed(w, mask, j->num_devices)) {
        return false;
    }
    /* Where few devices suit, counting them is quicker than asking for a place. */
    const struct open_map *m = open_map_get(s, mask);
    bool is_counted = w->num_suits <= WANT_FEW;
    if (is_counted && is_too_few(s, w, m, j->num_devices)) {
        return false;
    }
    if (place_find(m->map, &j->place, s->scratch, NULL, NULL) != PLACE_OK) {
        if (!is_counted) {
            is_too_few(s, w, m, j->num_devices);
        }
        return false;
    }
    sched_start(s, job, s->scratch);
    return true;
}

static void walk_job(struct sched *s, size_t job)
{
    struct seat *seat = &s->seats[job];
    if (!s->v->jobs[job].ready) {
        seat->outcome = OUTCOME_UNREADY;
        return;
    }
    if (seat->claims) {
        claim_walk(s, job);
        return;
    }
    uint64_t mask = reserve_mask(s, job);
    bool within = share_within_max(s, job);
    if ((within && start_on_free(s, job, mask)) || !sched_is_sane(s->f, &s->v->jobs[job])) {
        return;
    }
    if (preempt_try(s, job)) {
        return;
    }
    seat->outcome = within ? OUTCOME_WAITS : OUTCOME_LIMIT;
    if (within) {
        reserve_try(s, job);
    }
}

static void sched_walk(struct sched *s)
{
    bool waits = false;
    for (size_t i = 0; i < s->v->num_jobs; i++) {
        walk_job(s, s->order[i]);
        enum outcome o = s->seats[s->order[i]].outcome;
        waits = waits || o == OUTCOME_WAITS || o == OUTCOME_LIMIT;
    }
    if (waits) {
        victim_wake(s);
    }
}

size_t sched_pass(struct sched *s, const struct sched_view *v,
                  const struct sched_decision **decisions)
{
    begin_pass(s, v);
    sched_walk(s);
    s->has_passed = true;
    *decisions = s->decisions;
    return s->num_decisions;
}
