/* Ranks that run and get nowhere: an endless loop, a read from a dead disk, a debugger. Their peers
 * wait for them in a collective, whose own deadline is far off, because it can't know how long a
 * step may take. Here the run itself says: ten times its longest step, and never under half a
 * minute. While a rank loads, saves or exports, nothing is concluded. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/comm/comm_host.h"
#include "runtime/node/gang_state.h"

/* How many times its longest step a run may stand still. */
#define STEPS 10
/* Before the first step, and for a rank that nobody waits for. */
#define ALONE_MS 300000

void gang_stalled_step(struct gang *g)
{
    int64_t now = clock_mono_ms();
    if (now - g->moved_ms > g->longest_step_ms) {
        g->longest_step_ms = now - g->moved_ms;
    }
    g->num_steps++;
    g->moved_ms = now;
}

void gang_stalled_phase(struct gang *g, struct gang_member *m, const char *phase)
{
    bool trains = strcmp(phase, "train") == 0;
    if (trains != m->trains) {
        m->trains = trains;
        g->moved_ms = clock_mono_ms();
    }
}

static bool all_train(const struct gang *g)
{
    for (int32_t i = 0; i < g->options.num_ranks; i++) {
        if (!g->members[i].pid || !g->members[i].trains || g->members[i].done) {
            return false;
        }
    }
    return true;
}

static const char *what_it_does(char state)
{
    return state == 'R'   ? "it is busy in its own code"
           : state == 'D' ? "it waits for a disk or a driver"
           : state == 't' ? "a debugger holds it"
                          : "it sleeps in its own code";
}

static void fail(struct gang *g, int32_t rank, const char *where, int64_t still_ms)
{
    char text[GANG_TEXT_MAX];
    snprintf(text, sizeof text,
             "%s on %s in step %lld for %.0f s, where no step took longer than %.1f s: %s", where,
             g->members[rank].host, (long long)(g->num_steps_before + g->num_steps + 1),
             (double)still_ms / 1e3, (double)g->longest_step_ms / 1e3,
             what_it_does(gang_process_state(g->members[rank].pid)));
    gang_fail(g, rank, text);
}

void gang_look_for_stalled(struct gang *g)
{
    int64_t now = clock_mono_ms(), still_ms = now - g->moved_ms;
    int64_t limit_ms = STEPS * g->longest_step_ms;
    limit_ms = limit_ms > g->options.stalled_ms ? limit_ms : g->options.stalled_ms;
    bool alone = g->options.num_ranks == 1;
    if ((alone || g->num_steps == 0) && limit_ms < ALONE_MS) {
        limit_ms = ALONE_MS;
    }
    if (g->phase != GANG_RUNS || still_ms < limit_ms || !all_train(g)) {
        return;
    }
    struct comm_host_missing missing;
    char where[COMM_HOST_CALL_TEXT_MAX + 64];
    if (alone) {
        fail(g, 0, "has finished no step", still_ms);
    } else if (comm_host_segment_missing(g->segment, &missing, 1) == 1 &&
               gang_process_state(g->members[missing.rank].pid) != 'T') { /* stopped: not stuck */
        snprintf(where, sizeof where, "has not come to %s (call %u)", missing.call,
                 (unsigned)missing.call_number);
        fail(g, missing.rank, where, still_ms);
    }
}
