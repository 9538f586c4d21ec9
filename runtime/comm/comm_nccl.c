/* NCCL's provider: a world from an id, communicators as parts of it. */
#include "runtime/comm/comm_nccl.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static_assert(sizeof(ncclUniqueId) <= COMM_ID_MAX, "an id travels in COMM_ID_MAX bytes");

/* ---- making ---- */

/* What is made, for the board and for words. */
struct making {
    struct nccl_world *w;
    struct comm_board_line *line;
    struct comm_board_call call;
    char what[NCCL_TEXT_MAX];
};

static void making_begin(struct making *m, struct nccl_world *w, struct comm_board_line *line,
                         const char *name)
{
    *m = (struct making){.w = w, .line = line};
    m->call.kind = COMM_CALL_JOIN;
    m->call.number = 1;
    m->call.turn = ++w->turns;
    if (line) {
        w->board->ops->call_text(line, &m->call, m->what, sizeof m->what);
        w->board->ops->show(line, &m->call, true);
    } else {
        snprintf(m->what, sizeof m->what, "the making of %s", name);
    }
}

static int fail_deadline(struct making *m, struct error *err)
{
    struct nccl_world *w = m->w;
    char reason[COMM_BOARD_REASON_MAX];
    double waited_s = (double)w->deadline_ns / 1e9;
    int32_t culprit = -1;
    if (m->line) {
        culprit = w->board->ops->blame(m->line, &m->call, waited_s, reason, sizeof reason);
    } else {
        snprintf(reason, sizeof reason, "not all ranks came to %s within %.1f s", m->what,
                 waited_s);
    }
    nccl_fail(w, ERR_DEADLINE_EXCEEDED, culprit, reason);
    return nccl_failure(w, m->what, err);
}

/* Until `all` is through with what it was asked for. */
static int making_wait(struct making *m, ncclResult_t result, struct error *err)
{
    struct nccl_world *w = m->w;
    int64_t until = clock_mono_ns() + w->deadline_ns;
    while (result == ncclInProgress) {
        if (nccl_hear_abort(w)) {
            return nccl_failure(w, m->what, err);
        }
        if (clock_mono_ns() > until) {
            return fail_deadline(m, err);
        }
        clock_sleep_ms(1);
        if (ncclCommGetAsyncError(w->all, &result) != ncclSuccess) {
            result = ncclInternalError;
        }
    }
    if (result != ncclSuccess) {
        return nccl_error(err, w->all, result, m->what);
    }
    if (m->line) {
        w->board->ops->show(m->line, &m->call, false);
    }
    return 0;
}

/* ---- communicators ---- */

static int split(struct nccl_comm *c, int32_t color, struct error *err)
{
    struct nccl_world *w = c->w;
    struct making m;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    making_begin(&m, w, c->line, c->name);
    c->last = m.call;
    c->num_collectives = 1;
    if (!w->all || nccl_hear_abort(w)) {
        return nccl_failure(w, m.what, err);
    }
    ncclResult_t result = ncclCommSplit(w->all, color, c->base.rank, &c->nccl, &config);
    if (making_wait(&m, result, err) == 0) {
        ASSERT(c->nccl);
        return 0;
    }
    ncclCommAbort(w->all);
    w->all = NULL;
    c->nccl = NULL;
    return -1;
}

static int make_marks(struct nccl_comm *c, struct error *err)
{
    for (int32_t i = 0; i < NCCL_MARKS; i++) {
        CUDA_TRY(cudaEventCreateWithFlags(&c->marks[i].begun, cudaEventDisableTiming),
                 "new event of a communicator");
        CUDA_TRY(cudaEventCreateWithFlags(&c->marks[i].ended, cudaEventDisableTiming),
                 "new event of a communicator");
    }
    CUDA_TRY(cudaMalloc(&c->word, sizeof(float)), "memory of a barrier");
    return 0;
}

static void comm_drop(struct nccl_comm *c)
{
    for (int32_t i = 0; i < NCCL_MARKS; i++) {
        if (c->marks[i].begun) {
            cudaEventDestroy(c->marks[i].begun);
        }
        if (c->marks[i].ended) {
            cudaEventDestroy(c->marks[i].ended);
        }
    }
    if (c->word) {
        cudaFree(c->word);
    }
    free(c->messages);
    free(c);
}

static int world_comm_new(struct comm_world *base, struct device *dev, const int32_t *members,
                          int32_t num, const char *name, bool background, struct comm **out,
                          struct error *err)
{
    struct nccl_world *w = (struct nccl_world *)base;
    struct nccl_comm *c = calloc(1, sizeof *c);
    ASSERT(dev == w->dev && num >= 1 && num <= base->num_ranks);
    if (!c) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "new communicator: out of memory");
    }
    c->base = (struct comm){.ops = &nccl_comm_ops, .rank = -1, .size = num};
    c->w = w;
    snprintf(c->name, sizeof c->name, "%s", name);
    for (int32_t i = 0; i < num; i++) {
        c->base.rank = members[i] == base->rank ? i : c->base.rank;
    }
    ASSERT(c->base.rank >= 0);
    if (cuda_use(dev, err) != 0 || make_marks(c, err) != 0 ||
        (w->board &&
         w->board->ops->line_new(w->board, members, num, name, background, &c->line, err) != 0) ||
        split(c, members[0], err) != 0) {
        comm_drop(c);
        return -1;
    }
    pthread_mutex_lock(&w->lock);
    c->next = w->comms;
    w->comms = c;
    pthread_mutex_unlock(&w->lock);
    *out = &c->base;
    return 0;
}

/* What it has on its way ends first, by itself or by the watchdog. */
static void wait_until_idle(struct nccl_comm *c)
{
    struct nccl_world *w = c->w;
    for (;;) {
        cudaError_t error;
        pthread_mutex_lock(&w->lock);
        bool idle = nccl_pop_marks(c, &error) != 0 || c->num == 0 || !c->nccl;
        pthread_mutex_unlock(&w->lock);
        if (idle) {
            return;
        }
        clock_sleep_ms(1);
    }
}

void nccl_comm_free(struct comm *base)
{
    struct nccl_comm *c = (struct nccl_comm *)base;
    struct nccl_world *w = c->w;
    cuda_use(w->dev, NULL);
    wait_until_idle(c);
    pthread_mutex_lock(&w->lock);
    struct nccl_comm **link = &w->comms;
    while (*link != c) {
        link = &(*link)->next;
    }
    *link = c->next;
    pthread_mutex_lock(&w->wake_lock);
    w->latest = w->latest == c ? NULL : w->latest;
    pthread_mutex_unlock(&w->wake_lock);
    pthread_mutex_unlock(&w->lock);
    if (c->nccl && nccl_hear_abort(w)) {
        ncclCommAbort(c->nccl);
    } else if (c->nccl) {
        ncclCommDestroy(c->nccl);
    }
    comm_drop(c);
}

/* ---- world ---- */

static void world_abort(struct comm_world *base, const char *reason)
{
    struct nccl_world *w = (struct nccl_world *)base;
    if (w->board) {
        w->board->ops->abort(w->board, ERR_ABORTED, base->rank, reason);
    }
    pthread_mutex_lock(&w->wake_lock);
    if (!w->asked_to_abort) {
        w->asked_to_abort = true;
        snprintf(w->asked_reason, sizeof w->asked_reason, "%s", reason);
    }
    pthread_mutex_unlock(&w->wake_lock);
    nccl_wake(w);
}

static void world_close(struct comm_world *base)
{
    struct nccl_world *w = (struct nccl_world *)base;
    nccl_unwatch(w);
    cuda_ask_if_lost(w->dev, NULL, NULL);
    ASSERT(!w->comms);
    cuda_use(w->dev, NULL);
    if (w->all && nccl_hear_abort(w)) {
        ncclCommAbort(w->all);
    } else if (w->all) {
        ncclCommDestroy(w->all);
    }
    pthread_mutex_destroy(&w->lock);
    pthread_mutex_destroy(&w->wake_lock);
    pthread_cond_destroy(&w->wake);
    free(w);
}

static const struct comm_world_ops world_ops = {
    .name = "nccl",
    .close = world_close,
    .comm_new = world_comm_new,
    .abort = world_abort,
};

static int make_id(void *id, struct error *err)
{
    ncclUniqueId made;
    ncclResult_t result = ncclGetUniqueId(&made);
    if (result != ncclSuccess) {
        return nccl_error(err, NULL, result, "the id of NCCL's communicators");
    }
    memcpy(id, &made, sizeof made);
    return 0;
}

/* It carries no data: one channel is enough. */
static int join(struct nccl_world *w, const void *id, struct error *err)
{
    static const char name[] = "NCCL's communicator of all ranks";
    struct making m;
    ncclUniqueId unique;
    int32_t members[1024];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.minCTAs = config.maxCTAs = 1;
    ASSERT(w->base.num_ranks <= (int32_t)(sizeof members / sizeof *members));
    for (int32_t i = 0; i < w->base.num_ranks; i++) {
        members[i] = i;
    }
    if (w->board && w->board->ops->line_new(w->board, members, w->base.num_ranks, name, false,
                                            &w->line, err) != 0) {
        return -1;
    }
    memcpy(&unique, id, sizeof unique);
    making_begin(&m, w, w->line, name);
    ncclResult_t result =
        ncclCommInitRankConfig(&w->all, w->base.num_ranks, unique, w->base.rank, &config);
    if (result != ncclSuccess && result != ncclInProgress) {
        w->all = NULL;
        return nccl_error(err, NULL, result, m.what);
    }
    if (making_wait(&m, result, err) != 0) {
        ncclCommAbort(w->all);
        w->all = NULL;
        return -1;
    }
    return 0;
}

/* Behind a sync. Ranks abort their communicators one after the other: work that waited for one of
 * them goes on, with whatever is there, and may even end well with ranks that haven't heard yet. */
static bool is_lost(void *arg, struct error *err)
{
    struct nccl_world *w = arg;
    char doing[NCCL_TEXT_MAX] = "a wait for the device";
    if (!nccl_hear_abort(w)) {
        return false;
    }
    pthread_mutex_lock(&w->wake_lock);
    if (w->latest) {
        nccl_call_text(w->latest, &w->latest_call, doing, sizeof doing);
    }
    pthread_mutex_unlock(&w->wake_lock);
    return nccl_failure(w, doing, err) != 0;
}

static int provider_open(const struct comm_provider_options *o, struct comm_world **out,
                         struct error *err)
{
    ASSERT(o->num_ranks >= 1 && o->rank >= 0 && o->rank < o->num_ranks && o->deadline_ms > 0);
    struct nccl_world *w = calloc(1, sizeof *w);
    if (!w) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "NCCL: out of memory");
    }
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->wake_lock, NULL);
    w->base = (struct comm_world){.ops = &world_ops, .rank = o->rank, .num_ranks = o->num_ranks};
    w->dev = o->dev;
    w->board = o->board;
    w->deadline_ns = o->deadline_ms * 1000000;
    if (cuda_use(o->dev, err) != 0 || join(w, o->id, err) != 0 || nccl_watch(w, err) != 0) {
        world_close(&w->base);
        return -1;
    }
    cuda_ask_if_lost(w->dev, is_lost, w);
    *out = &w->base;
    return 0;
}

const struct comm_provider comm_nccl_provider = {
    .name = "nccl",
    .id_bytes = sizeof(ncclUniqueId),
    .make_id = make_id,
    .open = provider_open,
};
