/* What this host reports against what the cluster file says of it: a device that isn't reported is
 * out of use, the others are used, until it is reported again. Owner thread. */
#ifndef TANDEM_SERVER_DISCOVERY_H
#define TANDEM_SERVER_DISCOVERY_H

#include "server/controller.h"

/* A question to tandem-probe, for whoever posts it. The answer is said in the log and, where the
 * topology is a file's, held against that. */
struct probe_mail *discovery_ask(bool has_file);

/* What was found, of the node of its name; devices of type cpu are not counted, they are threads.
 * True: something is missing that wasn't, or is there again. */
bool discovery_take(struct topology *t, const NodeInfo *host);

/* The same by a tandem-node, of the devices that its attempt holds and no others: it runs as its
 * tenant's user, and is not believed about what isn't its own. */
void discovery_of_attempt(struct controller *c, const struct job *j, const Hello *hello);

#endif
