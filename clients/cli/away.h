/* Who follows a job waits for a server that is away, and goes on where it was. One that has
 * answered comes back: it has ten minutes. Of one that never answered nobody knows whether it is
 * one: it has the moments of a restart. */
#ifndef TANDEM_CLIENTS_CLI_AWAY_H
#define TANDEM_CLIENTS_CLI_AWAY_H

#include "clients/cli/cli.h"

struct away {
    int64_t since_ms; /* 0 = it is there: set so by who hears it */
};

/* Waits a moment, or until the server is there; false: it was long enough, try no more. */
bool away_wait(struct away *a, struct cli *cli, const struct error *err);

#endif
