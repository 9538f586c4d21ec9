/* What every process that we start by posix_spawn begins with. */
#ifndef TANDEM_BASE_CHILD_H
#define TANDEM_BASE_CHILD_H

#include <spawn.h>

/* Made, to be destroyed by the caller: no signal is blocked or ignored, and the child has a group
 * of its own (POSIX_SPAWN_SETPGROUP) or a session (POSIX_SPAWN_SETSID). Gives an error number. */
int child_attributes(posix_spawnattr_t *attr, short own);

#endif
