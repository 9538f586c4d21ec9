/* The launcher of the simulation: processes are sim_nodes. */
#include <stdio.h>
#include <stdlib.h>

#include "server/msg.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_server.h"

struct sim_launcher {
    struct launcher base; /* first */
    struct sim *sim;
};

static int start(struct launcher *base, int64_t job_id, int32_t attempt, const char *log_path,
                 struct launch_handle *out, int *ticket_fd, struct error *err)
{
    (void)log_path;
    struct sim *s = ((struct sim_launcher *)base)->sim;
    if (sim_strikes(s, s->profile->launch_error)) {
        sim_trace(s->now_us, "job %lld attempt %d can't be launched", (long long)job_id, attempt);
        sim_node_count_failure(s, job_id);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "start tandem-node: no more processes");
    }
    struct sim_node *n = sim_node_new(s, job_id, attempt);
    const struct sim_held *held = sim_client_held(n->truth, attempt);
    n->given = held ? held->devices : 0;
    *out = (struct launch_handle){.pid = n->pid, .start_time = n->pid};
    snprintf(out->boot_id, sizeof out->boot_id, "boot");
    *ticket_fd = -1;
    return 0;
}

static void do_kill(struct launcher *base, const struct launch_handle *h)
{
    sim_node_kill(((struct sim_launcher *)base)->sim, h->pid, true);
}

static enum launch_presence look(struct launcher *base, const struct launch_handle *h,
                                 struct launch_left *left)
{
    const struct sim_node *n = sim_node_find(((struct sim_launcher *)base)->sim, h->pid);
    sim_trace(((struct sim_launcher *)base)->sim->now_us, "tandem-node %lld is looked for",
              (long long)h->pid);
    if (left) {
        *left = (struct launch_left){.pid = h->pid, .name = "tandem-rank", .state = 'D', .num = 1};
    }
    return !n                  ? LAUNCH_GONE
           : n->alive          ? LAUNCH_ALIVE
           : sim_node_holds(n) ? LAUNCH_REMAINS
                               : LAUNCH_GONE;
}

static void free_launcher(struct launcher *base)
{
    free(base);
}

struct launcher *sim_launcher_new(struct sim *s)
{
    struct sim_launcher *l = calloc(1, sizeof *l);
    ASSERT(l);
    *l = (struct sim_launcher){.base = {.name = "sim",
                                        .start = start,
                                        .kill = do_kill,
                                        .look = look,
                                        .free = free_launcher},
                               .sim = s};
    return &l->base;
}

/* The controller closes the descriptor: without a ticket until now, there will be none. */
static void free_start(struct mail *base)
{
    struct launch_mail *m = (struct launch_mail *)base;
    if (m->ok) {
        sim_node_end_of_ticket(sim_current(), m->handle.pid);
    }
    msg_free(m->ticket);
    replay_free(&m->replay);
}

void sim_launcher_watch(struct sim *s, struct mail *base)
{
    (void)s;
    struct launch_mail *m = (struct launch_mail *)base;
    if (m->kind == LAUNCH_START) {
        base->free_fn = free_start;
    }
}
