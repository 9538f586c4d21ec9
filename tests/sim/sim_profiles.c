/* What the tests let go wrong. */
#include <stddef.h>
#include <string.h>

#include "tests/sim/sim.h"

const struct sim_profile sim_profiles[] = {
    /* [1]: acknowledged, then killed at once: most of all in the middle of a commit. */
    {.name = "submit",
     .jobs_min = 5,
     .jobs_max = 10,
     .steps_max = 5,
     .crash = 0.03,
     .crash_in_write = 0.1,
     .lose_reply = 0.3,
     .submit_twice = 0.4},
    /* [2]: killed in every state, while users stop, hold and go on. */
    {.name = "states",
     .reboot = 0.005,
     .crash = 0.03,
     .crash_in_write = 0.05,
     .stop = 0.01,
     .cancel = 0.05,
     .pause = 0.15,
     .hold = 0.1,
     .priority = 0.05,
     .resume_ended = 0.1,
     .lose_reply = 0.1,
     .rank_crash = 0.01},
    /* [3]: a stored spec can't be read any more. */
    {.name = "rot",
     .rot = 0.5,
     .crash = 0.02,
     .stop = 0.02,
     .cancel = 0.02,
     .pause = 0.1,
     .hold = 0.05,
     .resume_ended = 0.3,
     .rank_crash = 0.03,
     .break_stream = 0.05},
    /* [4]: links break, workers are well. */
    {.name = "links", .break_stream = 0.3, .crash = 0.005, .delay_max_ms = 3000, .lose_reply = 0.1},
    /* [5]: jobs finish while the controller is down. */
    {.name = "down",
     .reboot = 0.003,
     .steps_max = 15,
     .crash = 0.05,
     .stop = 0.02,
     .down_max_ms = 60000,
     .chaos_ms = 30000},
    /* [6]: many submits at once through restarts. */
    {.name = "many",
     .jobs_min = 12,
     .jobs_max = 16,
     .steps_max = 3,
     .chaos_ms = 8000,
     .crash = 0.04,
     .crash_in_write = 0.15,
     .stop = 0.02,
     .lose_reply = 0.3,
     .submit_twice = 0.5},
    /* [7]: words of older attempts come late. */
    {.name = "late",
     .late = 0.5,
     .rank_crash = 0.05,
     .node_kill = 0.03,
     .break_stream = 0.1,
     .delay_max_ms = 2000,
     .crash = 0.01},
    /* [8]: a node is given up and comes back; leases run out. */
    {.name = "leases",
     .crash = 0.05,
     .down_max_ms = 5400000,
     .chaos_ms = 7200000,
     .jobs_max = 3,
     .break_stream = 0.05,
     .rank_hang = 0.03,
     .node_kill = 0.02,
     .clock_drift = 0.05},
    /* [9]: the launcher and the kills fail; nothing destructive follows from not knowing. */
    {.name = "launcher",
     .launch_error = 0.2,
     .journal_error = 0.3,
     .stuck = 0.4,
     .node_kill = 0.05,
     .crash = 0.02,
     .cancel = 0.03,
     .pause = 0.05,
     .resume_ended = 0.2,
     .break_stream = 0.05},
    /* [26]: one budget. */
    {.name = "budget",
     .max_restarts = 3,
     .reset_after_steps = 10,
     .rank_crash = 0.1,
     .node_kill = 0.03,
     .rank_fatal = 0.005,
     .crash = 0.005,
     .wide = 0.1},
    /* [25]: cancels, and devices that can't be freed. */
    {.name = "cancels",
     .cancel = 0.2,
     .resume_ended = 0.5,
     .stuck = 0.5,
     .rank_hang = 0.02,
     .crash = 0.01,
     .break_stream = 0.05,
     .rank_crash = 0.02},
    /* [31]: rollbacks; checkpoints that turn out damaged. */
    {.name = "rollback",
     .rank_crash = 0.08,
     .node_kill = 0.05,
     .damage = 0.2,
     .crash = 0.02,
     .break_stream = 0.05,
     .pause = 0.05},
    /* [33]: the disk is full, or has errors, or is slow. */
    {.name = "disk",
     .full = 0.03,
     .io_errors = 0.03,
     .sync_us_max = 3000000,
     .crash = 0.01,
     .crash_in_write = 0.03,
     .break_stream = 0.05,
     .rank_crash = 0.06,
     .node_kill = 0.04,
     .cancel = 0.01,
     .pause = 0.15},
    /* [34]: clocks jump and drift. */
    {.name = "clocks",
     .clock_jump = 0.1,
     .clock_drift = 0.1,
     .rank_crash = 0.05,
     .crash = 0.02,
     .cancel = 0.01,
     .pause = 0.03},
    /* All of it. */
    {.name = "all",
     .reboot = 0.004,
     .crash = 0.015,
     .crash_in_write = 0.02,
     .stop = 0.005,
     .full = 0.005,
     .io_errors = 0.005,
     .sync_us_max = 500000,
     .break_stream = 0.05,
     .late = 0.1,
     .delay_max_ms = 1000,
     .lose_reply = 0.1,
     .submit_twice = 0.2,
     .rank_crash = 0.02,
     .rank_hang = 0.005,
     .node_kill = 0.02,
     .damage = 0.05,
     .launch_error = 0.05,
     .stuck = 0.1,
     .clock_jump = 0.01,
     .clock_drift = 0.02,
     .cancel = 0.02,
     .pause = 0.04,
     .hold = 0.04,
     .priority = 0.02,
     .resume_ended = 0.1},
    {.name = NULL},
};

static int64_t or_default(int64_t value, int64_t otherwise)
{
    return value ? value : otherwise;
}

struct sim_profile sim_profile_filled(const struct sim_profile *p)
{
    struct sim_profile f = *p;
    f.jobs_min = (int32_t)or_default(f.jobs_min, 2);
    f.jobs_max = (int32_t)or_default(f.jobs_max, 5);
    f.steps_max = or_default(f.steps_max, 40);
    f.chaos_ms = or_default(f.chaos_ms, 12000);
    f.down_max_ms = or_default(f.down_max_ms, 5000);
    f.delay_max_ms = or_default(f.delay_max_ms, 100);
    f.max_restarts = (int32_t)or_default(f.max_restarts, 30);
    f.reset_after_steps = or_default(f.reset_after_steps, 10);
    f.clock_drift = f.clock_drift > 0 ? f.clock_drift : 0.001;
    f.wide = f.wide > 0 ? f.wide : 0.3;
    return f;
}

const struct sim_profile *sim_profile(const char *name)
{
    for (const struct sim_profile *p = sim_profiles; p->name; p++) {
        if (strcmp(p->name, name) == 0) {
            return p;
        }
    }
    return NULL;
}
