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

static void forget_pass(struct sched *s)
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
    s->next_ms = SCHED_NEVER;
}

void sched_free(struct sched *s)
{
    if (!s) {
        return;
    }
    forget_pass(s);
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

static void take(struct open_map *m, int32_t device)
{
    free_map_take(m->map, device);
    m->bits[device / 64] &= ~((uint64_t)1 << (device % 64));
}

static struct open_map *add_map(struct sched *s, uint64_t mask)
{
    /* More are asked for only where many reservations differ in time; they are made anew then. */
    s->num_maps = s->num_maps == SCHED_MAX_MAPS ? 1 : s->num_maps;
    struct open_map *m = &s->maps[s->num_maps++];
    m->mask = mask;
    if (!m->map) {
        size_t num_words = (size_t)s->f->num_devices / 64 + 1;
        m->map = sched_must(free_map_copy(s->all));
        m->bits = sched_must(malloc(num_words * sizeof *m->bits));
    }
    return m;
}

const struct open_map *sched_map(struct sched *s, uint64_t mask)
{
    for (int32_t i = 0; i < s->num_maps; i++) {
        if (s->maps[i].mask == mask) {
            return &s->maps[i];
        }
    }
    struct open_map *m = add_map(s, mask);
    free_map_set(m->map, s->maps[0].map);
    memcpy(m->bits, s->maps[0].bits, ((size_t)s->f->num_devices / 64 + 1) * sizeof *m->bits);
    for (int32_t i = 0; i < s->num_reservations; i++) {
        const struct reservation *r = &s->reservations[i];
        for (int32_t k = 0; (mask >> i & 1) && k < r->num; k++) {
            take(m, r->devices[k]);
        }
    }
    return m;
}

void sched_take(struct sched *s, int32_t device)
{
    for (int32_t i = 0; i < s->num_maps; i++) {
        take(&s->maps[i], device);
    }
}

static void make_room(struct sched *s, const struct sched_view *v)
{
    if (v->num_jobs >= s->job_cap) {
        s->job_cap = v->num_jobs + v->num_jobs / 2 + 64;
        s->seats = sched_must(realloc(s->seats, s->job_cap * sizeof *s->seats));
        s->order = sched_must(realloc(s->order, s->job_cap * sizeof *s->order));
    }
    if (v->num_runs >= s->run_cap) {
        s->run_cap = v->num_runs + v->num_runs / 2 + 64;
        s->stops = sched_must(realloc(s->stops, s->run_cap * sizeof *s->stops));
        s->borrowed = sched_must(realloc(s->borrowed, s->run_cap * sizeof *s->borrowed));
    }
    if ((size_t)v->num_tenants >= s->tenant_cap) {
        s->tenant_cap = (size_t)v->num_tenants + 64;
        s->held = sched_must(realloc(s->held, s->tenant_cap * sizeof *s->held));
    }
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

static void begin_jobs(struct sched *s)
{
    const struct sched_view *v = s->v;
    if (want_table_num(s->wants) > SCHED_MAX_WANTS) {
        want_table_clear(s->wants);
    }
    for (size_t i = 0; i < v->num_jobs; i++) {
        const struct sched_job *j = &v->jobs[i];
        s->seats[i] = (struct seat){
            .hard_end_ms = j->limit_ms > 0 ? sched_add_ms(v->now_ms, j->limit_ms) : SCHED_NEVER,
            .want = want_table_add(s->wants, &j->place),
            .reservation = -1,
            .outcome = OUTCOME_WAITS};
    }
}

static void begin_devices(struct sched *s)
{
    const struct sched_view *v = s->v;
    for (int32_t d = 0; d < s->f->num_devices; d++) {
        s->holder[d] = HOLDER_NONE;
        s->claimant[d] = NO_JOB;
        s->reserved[d] = 0;
    }
    uint64_t *bits[] = {s->covered, s->claimed, s->kept[0], s->kept[1]};
    for (size_t i = 0; i < sizeof bits / sizeof *bits; i++) {
        memset(bits[i], 0, ((size_t)s->f->num_devices / 64 + 1) * sizeof *bits[i]);
    }
    for (size_t i = 0; i < v->num_runs; i++) {
        s->stops[i] = false;
        for (int32_t k = 0; k < device_set_num(v->runs[i].devices); k++) {
            s->holder[v->runs[i].devices->device[k]] = (int32_t)i;
        }
    }
}

/* Makes the first map what is free now; true: some device is free that wasn't. */
static bool update_free(struct sched *s)
{
    s->num_maps = 0;
    struct open_map *m = add_map(s, 0);
    if (!s->has_passed) {
        free_map_set(m->map, s->none);
        memset(m->bits, 0, ((size_t)s->f->num_devices / 64 + 1) * sizeof *m->bits);
    }
    bool grew = !s->has_passed;
    for (int32_t d = 0; d < s->f->num_devices; d++) {
        bool is_free = s->holder[d] == HOLDER_NONE && sched_may_use(s, d, SIZE_MAX, 0);
        bool was_free = m->bits[d / 64] >> (d % 64) & 1;
        if (is_free && !was_free) {
            free_map_give(m->map, d);
            m->bits[d / 64] |= (uint64_t)1 << (d % 64);
            grew = true;
        } else if (!is_free && was_free) {
            take(m, d);
        }
    }
    return grew;
}

/* What didn't fit the devices that were free doesn't fit a part of them. */
static void begin_free(struct sched *s)
{
    bool grew = update_free(s);
    for (int32_t i = 0; i < want_table_num(s->wants); i++) {
        struct want *w = want_table_get(s->wants, i);
        int32_t num = 0;
        for (int32_t k = 0; !grew && k < w->num_fails; k++) {
            if (w->fails[k].mask == 0) {
                w->fails[num++] = w->fails[k];
            }
        }
        w->num_fails = num;
        w->num_tries = 0;
        w->impossible[0] = w->impossible[1] = INT32_MAX;
        w->leaving_stamp = -1;
        w->is_covered = false;
    }
}

void sched_begin(struct sched *s, const struct sched_view *v)
{
    ASSERT(v->fabric == s->f);
    ASSERT(v->num_jobs < INT32_MAX && v->num_runs < INT32_MAX);
    forget_pass(s);
    s->v = v;
    s->has_borrowed = s->has_coming = s->has_possible = false;
    make_room(s, v);
    begin_jobs(s);
    begin_devices(s);
    order_build(s);
    claim_build(s);
    begin_free(s);
    share_build(s);
    victim_build(s);
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
        sched_take(s, devices[i]);
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

static bool start_on_free(struct sched *s, size_t job, uint64_t mask)
{
    const struct sched_job *j = &s->v->jobs[job];
    struct want *w = want_table_get(s->wants, s->seats[job].want);
    if (!sched_is_sane(s->f, j) || want_has_failed(w, mask, j->num_devices)) {
        return false;
    }
    const struct open_map *m = sched_map(s, mask);
    room_start(&s->room, w, m->bits);
    if (room_size(&s->room) < j->num_devices) {
        want_failed(w, mask, room_size(&s->room) + 1);
        return false;
    }
    if (place_find(m->map, &j->place, s->scratch, NULL, NULL) != PLACE_OK) {
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

void sched_walk(struct sched *s)
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
    sched_begin(s, v);
    sched_walk(s);
    s->has_passed = true;
    *decisions = s->decisions;
    return s->num_decisions;
}
