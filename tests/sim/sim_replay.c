/* server/replay.h in the simulation: the journal of a tandem-node is what it had not been heard of
 * when it died, but for what a full disk didn't take. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/text.h"
#include "server/msg.h"
#include "server/replay.h"
#include "tests/sim/sim_node.h"

static struct sim_node *find(struct sim *s, int64_t job_id, int32_t attempt)
{
    for (size_t i = s->num_nodes; i > 0; i--) {
        if (s->nodes[i - 1]->job == job_id && s->nodes[i - 1]->attempt == attempt) {
            return s->nodes[i - 1];
        }
    }
    return NULL;
}

int replay_read(struct replay *out, const char *data_dir, int64_t job_id, int32_t attempt,
                int64_t acked_seq, struct error *err)
{
    (void)data_dir;
    struct sim *s = sim_current();
    *out = (struct replay){0};
    const struct sim_node *n = find(s, job_id, attempt);
    if (sim_strikes(s, s->profile->journal_error)) {
        return error_set(err, ERR_UNAVAILABLE, "the journal of job %lld can't be read",
                         (long long)job_id);
    }
    if (!n) {
        return 0;
    }
    out->ups = calloc(n->num_reports + 1, sizeof *out->ups);
    ASSERT(out->ups);
    size_t most = (size_t)sim_rng_between(&s->rng, 1, 20);
    for (size_t i = 0; i < n->num_reports && out->num_ups < most; i++) {
        const WorkerUp *up = n->reports[i];
        bool is_kept = !n->lost_from || up->seq < n->lost_from;
        if (up->seq > acked_seq && is_kept) {
            out->ups[out->num_ups++] = (WorkerUp *)text_clone(&up->base);
        }
    }
    if (!out->num_ups && n->lost_from) {
        snprintf(out->loss, sizeof out->loss, "the disk was full");
    }
    sim_trace(s->now_us, "the journal of job %lld attempt %d has %zu more", (long long)job_id,
              attempt, out->num_ups);
    return 0;
}

void replay_free(struct replay *r)
{
    for (size_t i = 0; i < r->num_ups; i++) {
        msg_free(r->ups[i]);
    }
    free(r->ups);
    *r = (struct replay){0};
}
