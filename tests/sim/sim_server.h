/* The controller in the simulation: booted on the disk, stepped when it has mail or when its time
 * has come, crashed between two instructions of its disk. Its world is sim_world.c. */
#ifndef TANDEM_TESTS_SIM_SERVER_H
#define TANDEM_TESTS_SIM_SERVER_H

#include "server/app.h"
#include "server/lease.h"
#include "tests/sim/sim.h"

struct sim_token {
    int64_t job;
    int32_t attempt;
    uint8_t sha256[HASH_BYTES];
};

struct sim_server {
    bool up;
    int64_t generation; /* counts boots */
    struct app app;
    struct lease *lease;
    struct launching *launching;
    struct mailbox_node *inbox; /* taken, not yet handled */
    int64_t wake_id, wake_us;
    int64_t busy_us;             /* in a slow sync until then */
    int64_t step_us;             /* its clock when it took the last step */
    bool unchecked;              /* nobody has seen what that step left on the disk */
    int64_t unchecked_us;        /* ... nor what those since then did */
    int64_t late_us;             /* so long at most was it busy */
    int64_t second, idle_steps;  /* steps without mail in that second */
    int64_t booted_us, jumps_us; /* jumps: of the clock on the wall, so far */
    int64_t mono_0_ms;           /* its host's clocks at time 0 */
    int64_t wall_0_us;
    int64_t last_event; /* the newest that anybody was told of */
    struct sim_token *tokens;
    size_t num_tokens, cap_tokens;
};

void sim_server_new(struct sim *s);
void sim_server_free(struct sim *s);
/* A boot may fail (a full disk); then it is tried again, as a service manager does. */
void sim_server_boot(struct sim *s);
void sim_server_crash(struct sim *s);
/* In good order. */
void sim_server_stop(struct sim *s);
/* Crash or stop now, boot after a while. */
void sim_server_restart(struct sim *s, bool crash);
/* The host goes down and comes up: its monotonic clock starts anew. */
void sim_server_reboot(struct sim *s);
/* After each event: takes the mail in. */
void sim_server_poke(struct sim *s);
/* Which attempt a token opens; NULL = none. */
const struct sim_token *sim_server_token(const struct sim *s, const uint8_t sha256[HASH_BYTES]);
int64_t sim_server_mono_ms(const struct sim *s);

/* sim_rot.c: before a boot, perhaps. */
void sim_server_rot(struct sim *s);
/* sim_world.c */
struct world sim_world(struct sim *s);
/* sim_launcher.c */
struct launcher *sim_launcher_new(struct sim *s);
/* The launch thread has run m: what becomes of a ticket that never comes. */
void sim_launcher_watch(struct sim *s, struct mail *m);

#endif
