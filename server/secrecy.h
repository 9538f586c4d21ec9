/* What others get to see of tandemd: the environment that its children inherit, and its memory.
 *
 * The shell that starts a server may hold anything (keys of clouds, tokens of CI). Of that only
 * what a process of ours can need is handed on: where programs and libraries are, language, time
 * zone, folders, what our own and the usual numerical libraries read; and what the config names. */
#ifndef TANDEM_SERVER_SECRECY_H
#define TANDEM_SERVER_SECRECY_H

#include <stdbool.h>
#include <stddef.h>

/* Is it handed on without being named? */
bool secrecy_passes(const char *variable);
/* Takes all other variables but those named out of the environment. While there is one thread. */
void secrecy_cut_environment(char *const *names, size_t num);
/* No core dumps, of the processes below neither; and no other process of this user may look into
 * this one. */
void secrecy_guard_memory(void);

#endif
