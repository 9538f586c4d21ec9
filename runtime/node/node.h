/* One attempt on one host: attached to the controller, a gang below it. Waits for Start, runs the
 * gang, passes commands down and reports up, says how it ended, leaves once that is acknowledged.
 */
#ifndef TANDEM_RUNTIME_NODE_NODE_H
#define TANDEM_RUNTIME_NODE_NODE_H

#include "proto/names.h"

/* The exit code of the program. Blocks the signals that it reads by descriptor; before any thread
 * starts, on the main thread. */
int node_run(const LaunchTicket *ticket);

#endif
