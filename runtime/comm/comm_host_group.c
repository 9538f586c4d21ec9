/* The barrier of a communicator, and the comparison of what its members call.
 *
 * Each member counts itself in; the last one opens the next generation and wakes the others. A
 * member also writes down in its own line how far it came: so the missing one has a name. */
#include "runtime/comm/comm_host_group.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static void group_digits(int64_t n, char out[32])
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%lld", (long long)n);
    int at = 0;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0) {
            out[at++] = ',';
        }
        out[at++] = digits[i];
    }
    out[at] = 0;
}

/* "bucket 3 (65,536 fp64)", "65,536 fp64" */
static void operand_text(const struct segment_call *call, char *out, size_t size)
{
    static const char *const dtypes[] = {"fp32", "fp64", "bf16", "int32"};
    char count[32];
    const char *dtype = call->dtype <= DTYPE_I32 ? dtypes[call->dtype] : "?";
    group_digits(call->n, count);
    if (call->kind == CALL_EXCHANGE) {
        dtype = call->n == 1 ? "message" : "messages";
    }
    if (call->what[0]) {
        snprintf(out, size, "%.*s (%s %s)", COMM_WHAT_MAX, call->what, count, dtype);
    } else {
        snprintf(out, size, "%s %s", count, dtype);
    }
}

void host_call_text(const struct segment_call *call, const char *group,
                    char text[COMM_HOST_CALL_TEXT_MAX])
{
    static const char *const kinds[] = {"no call",   "all-reduce", "reduce-scatter", "all-gather",
                                        "broadcast", "barrier",    "send",           "receive",
                                        "exchange",  "the making"};
    uint32_t kind = call->kind <= CALL_JOIN ? call->kind : 0;
    char operand[80], more[32] = "";
    operand_text(call, operand, sizeof operand);
    if (kind == CALL_BROADCAST) {
        snprintf(more, sizeof more, " from member %d", (int)call->root);
    } else if (kind == CALL_SEND || kind == CALL_RECV) {
        snprintf(more, sizeof more, " %s member %d", kind == CALL_SEND ? "to" : "from",
                 (int)call->root);
    } else if (call->op == COMM_MAX && kind == CALL_ALL_REDUCE) {
        snprintf(more, sizeof more, " (max)");
    }
    bool bare = kind == 0 || kind == CALL_BARRIER || kind == CALL_JOIN;
    const char *of = kind == CALL_JOIN ? " of " : " over ";
    snprintf(text, COMM_HOST_CALL_TEXT_MAX, "%s%s%s%s%s%.*s", kinds[kind], bare ? "" : " of ",
             bare ? "" : operand, bare ? "" : more, group[0] ? of : "", COMM_HOST_NAME_MAX - 1,
             group);
}

/* ---- barrier ----------------------------------------------------------------------------------
 */

/* "rank 3 on n2", "ranks 2 on n1, 3 on n1" */
static void ranks_text(const char *const *hosts, const int32_t *ranks, int num, char *out,
                       size_t size)
{
    size_t len = (size_t)snprintf(out, size, "rank%s ", num > 1 ? "s" : "");
    for (int i = 0; i < num && len < size; i++) {
        const char *host = hosts ? hosts[ranks[i]] : NULL;
        if (i == 4 && num > 5) {
            len += (size_t)snprintf(out + len, size - len, " and %d more", num - i);
            break;
        }
        len += (size_t)snprintf(out + len, size - len, "%s%d%s%.40s", i ? ", " : "", (int)ranks[i],
                                host ? " on " : "", host ? host : "");
    }
}

int32_t host_blame(struct segment_header *h, const char *const *hosts,
                   const struct segment_call *doing, const char *group, double waited_s, char *out,
                   size_t size)
{
    char mine[COMM_HOST_CALL_TEXT_MAX], who[256];
    int32_t ranks[COMM_HOST_MAX_RANKS];
    struct comm_host_missing missing;
    host_call_text(doing, group, mine);
    int num = host_first_missing(h, ranks, &missing);
    bool is_message = doing->kind == CALL_SEND || doing->kind == CALL_RECV;
    if (num <= 0) {
        snprintf(out, size, "%s %s for %.1f s",
                 is_message ? "members wait for each other in" : "a member stopped inside", mine,
                 waited_s);
        return -1;
    }
    ranks_text(hosts, ranks, num, who, sizeof who);
    snprintf(out, size, "%s did not come to %s within %.1f s", who, missing.call, waited_s);
    return ranks[0];
}

/* Not always whom this member waits for: that one may wait for another itself. */
int host_group_fail_deadline(struct host_group *g, const struct segment_call *doing,
                             struct error *err)
{
    char mine[COMM_HOST_CALL_TEXT_MAX], reason[SEGMENT_REASON_MAX];
    int32_t culprit = host_blame(g->segment, g->hosts, doing, g->name, (double)g->deadline_ns / 1e9,
                                 reason, sizeof reason);
    segment_abort(g->segment, ERR_DEADLINE_EXCEEDED, culprit, reason);
    host_call_text(doing, g->name, mine);
    return segment_abort_error(g->segment, mine, err);
}

int host_group_fail_aborted(struct host_group *g, const struct segment_call *doing,
                            struct error *err)
{
    char call[COMM_HOST_CALL_TEXT_MAX];
    host_call_text(doing, g->name, call);
    return segment_abort_error(g->segment, call, err);
}

void host_cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The slot's generation once it isn't `old` any more; `old` when the deadline has passed. */
static uint32_t wait_generation(struct host_group *g, uint32_t old)
{
    struct segment_slot *slot = g->slot;
    uint32_t seen = old;
    for (int i = 0; i < g->spins && seen == old; i++) {
        host_cpu_pause();
        seen = atomic_load_explicit(&slot->generation, memory_order_acquire);
    }
    if (seen != old) {
        return seen;
    }
    int64_t until = clock_mono_ns() + g->deadline_ns;
    atomic_fetch_add(&slot->sleepers, 1);
    while ((seen = atomic_load(&slot->generation)) == old && clock_mono_ns() < until) {
        segment_futex_wait(&slot->generation, old, until);
    }
    atomic_fetch_sub(&slot->sleepers, 1);
    return seen;
}

int host_group_barrier(struct host_group *g, const struct segment_call *doing, struct error *err)
{
    struct segment_slot *slot = g->slot;
    uint32_t old = g->generation, next = old + 2;
    if (segment_is_aborted(g->segment)) {
        return host_group_fail_aborted(g, doing, err);
    }
    atomic_store(&slot->members[g->base.rank].reached, next);
    uint32_t seen = old;
    if (atomic_fetch_add(&slot->arrived, 1) + 1 == (uint32_t)g->base.size) {
        atomic_store(&slot->arrived, 0);
        /* Not over an abort that was quicker: some may have woken from it. */
        if (atomic_compare_exchange_strong(&slot->generation, &seen, next)) {
            seen = next;
            if (atomic_load(&slot->sleepers) != 0) {
                segment_futex_wake_all(&slot->generation);
            }
        }
    } else {
        seen = wait_generation(g, old);
    }
    if (seen == old) {
        int rc = host_group_fail_deadline(g, doing, err);
        seen = atomic_fetch_or(&slot->generation, 1) | 1;
        if (seen != (next | 1)) {
            return rc;
        }
    }
    /* Where all came the call counts, though one that was quick has left and the gang is aborted
     * meanwhile, or the last came as this one's deadline passed: all members hear the same. */
    if (seen != next && seen != (next | 1)) {
        return host_group_fail_aborted(g, doing, err);
    }
    g->generation = next;
    return 0;
}

/* ---- entry ------------------------------------------------------------------------------------
 */

const struct segment_call *host_group_call(const struct host_group *g, int32_t member)
{
    return &g->slot->members[member].calls[g->num_calls & 1];
}

static bool same_call(const struct segment_call *a, const struct segment_call *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op && a->root == b->root &&
           a->n == b->n && memcmp(a->what, b->what, sizeof a->what) == 0;
}

int host_group_fail_misfit(struct host_group *g, const struct segment_call *doing, int32_t culprit,
                           const char *reason, struct error *err)
{
    segment_abort(g->segment, ERR_FAILED_PRECONDITION, culprit, reason);
    return host_group_fail_aborted(g, doing, err);
}

/* All members read the same lines and so come to the same words. */
static int fail_mismatch(struct host_group *g, int32_t odd, const struct segment_call *mine,
                         struct error *err)
{
    char theirs[COMM_HOST_CALL_TEXT_MAX], first[COMM_HOST_CALL_TEXT_MAX];
    host_call_text(host_group_call(g, odd), "", theirs);
    host_call_text(host_group_call(g, 0), g->name, first);
    char reason[SEGMENT_REASON_MAX];
    snprintf(reason, sizeof reason, "rank %d called %s where rank %d called %s",
             (int)g->members[odd], theirs, (int)g->members[0], first);
    return host_group_fail_misfit(g, mine, g->members[odd], reason, err);
}

void host_group_show(struct host_group *g, const struct segment_call *call)
{
    segment_show(&g->slot->members[g->base.rank], call);
}

static void find_staging(struct host_group *g)
{
    for (int32_t i = 0; i < g->base.size; i++) {
        uint32_t idx = host_group_call(g, i)->staging_idx;
        ASSERT(idx < SEGMENT_COMMS_PER_RANK);
        g->staging[i] = (char *)g->segment + segment_staging_offset(g->segment, g->members[i]) +
                        idx * SEGMENT_STAGING_BYTES;
    }
}

int host_group_enter(struct host_group *g, const struct segment_call *mine, struct error *err)
{
    g->num_calls++;
    /* Two lines by parity: whoever still compares the last call has not come to this one yet. */
    struct segment_call *line = &g->slot->members[g->base.rank].calls[g->num_calls & 1];
    *line = *mine;
    line->number = g->num_calls;
    host_group_show(g, line);
    if (host_group_barrier(g, mine, err) != 0) {
        return -1;
    }
    for (int32_t i = 1; i < g->base.size; i++) {
        if (!same_call(host_group_call(g, i), host_group_call(g, 0))) {
            return fail_mismatch(g, i, mine, err);
        }
    }
    if (g->num_calls == 1) {
        find_staging(g);
    }
    return 0;
}
