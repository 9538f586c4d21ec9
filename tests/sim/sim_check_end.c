/* What is true once the faults are over and all has come to rest. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/job.h"
#include "server/store/metric_row.h"
#include "tests/sim/sim_check.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_server.h"

bool sim_check_is_quiet(struct sim *s)
{
    if (!s->calm || !s->server->up || !sim_client_is_done(s)) {
        return false;
    }
    for (size_t i = 0; i < s->num_nodes; i++) {
        if (s->nodes[i]->alive || sim_node_holds(s->nodes[i])) {
            return false;
        }
    }
    return controller_num_jobs(s->server->app.controller) == 0;
}

struct curve {
    struct sim *sim;
    const struct sim_job *job;
    int64_t next;
};

static bool take_metric(void *arg, const struct metric_row *m)
{
    struct curve *c = arg;
    double loss = sim_node_loss(c->job, m->step);
    if (m->step != c->next || !(fabs(m->values[0] - loss) <= 1e-12)) {
        sim_fail(c->sim, "the curve of %s: step %lld (attempt %d) with loss %g; step %lld expected",
                 c->job->name, (long long)m->step, m->attempt, m->values[0], (long long)c->next);
        return false;
    }
    c->next++;
    return true;
}

static void check_curve(struct sim *s, struct store *store, const struct sim_job *j)
{
    struct curve c = {.sim = s, .job = j, .next = 1};
    struct store_metric_range all = {.job = j->id};
    struct error err = {0};
    if (store_metric_scan(store, &all, take_metric, NULL, &c, &err) != 0) {
        sim_fail(s, "the curve of %s: %s", j->name, err.text);
    } else if (j->state == JOB_SUCCEEDED && c.next != j->total_steps + 1) {
        sim_fail(s, "the curve of %s ends at step %lld of %lld", j->name, (long long)c.next - 1,
                 (long long)j->total_steps);
    }
}

static void check_row(struct sim *s, const struct job_row *row, bool *is_there)
{
    const struct sim_job *j = sim_client_job_named(s, row->name);
    if (is_there[j->idx]) {
        sim_fail(s, "%s is there twice", j->name);
    }
    is_there[j->idx] = true;
    if (row->id != j->id || row->state != j->state) {
        sim_fail(s, "%s ended as %s, but its row says job %lld, %s", j->name,
                 job_state_name(j->state), (long long)row->id, job_state_name(row->state));
    }
    if (row->state == JOB_SUCCEEDED && row->step != row->total_steps) {
        sim_fail(s, "%s succeeded at step %lld of %lld", j->name, (long long)row->step,
                 (long long)row->total_steps);
    }
    if (row->attempt.number && row->attempt.condition != ATTEMPT_GONE) {
        sim_fail(s, "attempt %d of %s is still there by its row", row->attempt.number, j->name);
    }
}

void sim_check_end(struct sim *s)
{
    struct store *store = controller_store(s->server->app.controller);
    struct store_job_filter all = {.limit = 1000};
    struct job_row *rows;
    size_t num;
    struct error err = {0};
    bool is_there[SIM_JOBS_MAX] = {false};
    if (store_job_list(store, &all, &rows, &num, &err) != 0) {
        sim_fail(s, "at the end: %s", err.text);
        return;
    }
    for (size_t i = 0; i < num; i++) {
        check_row(s, &rows[i], is_there);
    }
    free(rows);
    for (int32_t i = 0; i < s->num_jobs; i++) {
        if (!is_there[i] && !s->jobs[i].too_large) {
            sim_fail(s, "%s is not there", s->jobs[i].name);
        }
        check_curve(s, store, &s->jobs[i]);
    }
    sim_check_accounts(s, store);
}
