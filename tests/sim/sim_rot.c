/* Rot in the database, while no controller has it open: the stored spec of one job is not what was
 * written. */
#include <sqlite3.h>
#include <stdio.h>

#include "base/error.h"
#include "server/job.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_server.h"

static struct sim_job *pick(struct sim *s)
{
    struct sim_job *j = &s->jobs[sim_rng_between(&s->rng, 0, s->num_jobs - 1)];
    return j->real_id && !job_state_is_end(j->state) ? j : NULL;
}

void sim_server_rot(struct sim *s)
{
    struct sim_job *j = sim_strikes(s, s->profile->rot) ? pick(s) : NULL;
    if (!j || sim_disk_faults(s->disk)->full) {
        return;
    }
    sqlite3 *db;
    char sql[160];
    snprintf(sql, sizeof sql, "UPDATE specs SET spec = x'0a0b0c' WHERE job = %lld",
             (long long)j->real_id);
    ASSERT(sqlite3_open(SIM_DATA_DIR "/tandem.db", &db) == SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK) {
        sim_trace(s->now_us, "the stored spec of %s is damaged", j->name);
        j->is_rotten = true;
    }
    sqlite3_close(db);
}
