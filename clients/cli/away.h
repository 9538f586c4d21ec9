/* Who follows a job waits for a server that is away, and goes on where it was. One that has
 * answered comes back: it has ten minutes. Of one that never answered nobody knows whether it is
 * one: it has the moments of a restart. */
#ifndef TANDEM_CLIENTS_CLI_AWAY_H
#define TANDEM_CLIENTS_CLI_AWAY_H

#include "clients/cli/cli.h"

/* Waits a moment, or until the server is there; false: it was long enough, try no more. One
 * patience for all calls of a command: what hears the server sets cli->away_since_ms to 0. */
bool away_wait(struct cli *cli, const struct error *err);

#endif
