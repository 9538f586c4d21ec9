/* Ranks that someone has stopped (SIGSTOP, a terminal's Ctrl-Z). A stopped process never says so,
 * and where there is only one rank no collective's deadline finds it either. */
#include <stdio.h>

#include "base/clock.h"
#include "runtime/comm/comm_host.h"
#include "runtime/node/gang_state.h"
#include "runtime/node/proctree.h"

char gang_process_state(pid_t pid)
{
    char number[16], line[PROCTREE_STAT_MAX];
    snprintf(number, sizeof number, "%d", (int)pid);
    const char *fields = proctree_stat(number, line);
    return fields ? *fields : 0;
}

void gang_waited_for(const struct gang *g, int32_t rank, char *out, size_t size)
{
    struct comm_host_missing missing;
    out[0] = 0;
    if (g->segment && comm_host_segment_waits_for(g->segment, rank, &missing)) {
        snprintf(out, size, "; the others wait for it in %s (call %u)", missing.call,
                 (unsigned)missing.call_number);
    }
}

void gang_look_for_stopped(struct gang *g)
{
    int64_t now = clock_mono_ms();
    for (int32_t i = 0; i < g->options.num_ranks && g->phase == GANG_RUNS; i++) {
        struct gang_member *m = &g->members[i];
        if (!m->pid || gang_process_state(m->pid) != 'T') {
            m->stopped_since_ms = 0;
        } else if (!m->stopped_since_ms) {
            m->stopped_since_ms = now;
        } else if (now - m->stopped_since_ms >= g->options.stopped_ms) {
            char text[GANG_TEXT_MAX], waits[GANG_WAITS_MAX];
            gang_waited_for(g, m->rank, waits, sizeof waits);
            snprintf(text, sizeof text,
                     "stood still for %.0f s on %s after step %lld: stopped by a signal (SIGSTOP), "
                     "not by Tandem%s",
                     (double)(now - m->stopped_since_ms) / 1000.0, m->host, (long long)m->step,
                     waits);
            gang_fail(g, m->rank, text);
            return;
        }
    }
}
