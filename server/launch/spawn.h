/* Asking tandem-spawn, the helper with root's rights (server/spawn/). */
#ifndef TANDEM_SERVER_LAUNCH_SPAWN_H
#define TANDEM_SERVER_LAUNCH_SPAWN_H

#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"

/* Runs BIN_DIR/tandem-spawn with words (NULL-terminated, at most 8); what it prints goes into out,
 * NUL-terminated. -1: it refused, with its own words, or didn't answer in time. */
int launch_spawn_ask(const char *bin_dir, const char *const *words, char *out, size_t size,
                     struct error *err);

#endif
