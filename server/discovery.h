/* What this host has, found by tandem-probe at the start and said in the log: for people, and to
 * tell where a cluster file is wrong. Nothing is decided by it. */
#ifndef TANDEM_SERVER_DISCOVERY_H
#define TANDEM_SERVER_DISCOVERY_H

#include <stdbool.h>

#include "server/probing.h"

/* has_file: the topology is a file's, which the host is held against. */
void discovery_ask(struct probing *p, bool has_file);

#endif
