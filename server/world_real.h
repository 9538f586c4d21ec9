/* The world of tandemd: the host's clocks and files, and the threads that serve the controller. */
#ifndef TANDEM_SERVER_WORLD_REAL_H
#define TANDEM_SERVER_WORLD_REAL_H

#include "server/feed.h"
#include "server/launching.h"
#include "server/lease.h"
#include "server/probing.h"
#include "server/room.h"
#include "server/world.h"

/* Nothing here is owned. launching and probing may be filled in later, before the controller
 * starts. */
struct world_real {
    struct auth *auth;
    struct audit *audit;
    struct lease *lease;
    struct feed *feed;
    struct launching *launching;
    struct probing *probing;
    struct room *room;
};

/* parts is kept. */
struct world world_real(struct world_real *parts);

#endif
