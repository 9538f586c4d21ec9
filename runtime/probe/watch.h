/* Looks at GPUs of this host while a job runs on them, until stdin ends: what goes wrong with them
 * is told on stdout as it is found (WatchUp, framed as in runtime/link). tandem-node starts it as a
 * process of its own, so that a driver's library that crashes or hangs takes no job with it.
 *
 * The same of a device is told again only after a while; what was there before is told at once
 * where it still matters (rows of memory) and else is what is counted from. */
#ifndef TANDEM_RUNTIME_PROBE_WATCH_H
#define TANDEM_RUNTIME_PROBE_WATCH_H

#include <stdint.h>

/* The exit code where there is nothing to look at, after a note that says so. */
#define WATCH_HAS_SAID_WHY 3

/* devices: "0,1,5", as the driver numbers them. Returns the exit code: 0 = stdin has ended. */
int watch_run(const char *devices);

#endif
