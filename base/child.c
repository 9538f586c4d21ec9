#include "base/child.h"

#include <signal.h>

int child_attributes(posix_spawnattr_t *attr, short own)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(attr);
    posix_spawnattr_setsigmask(attr, &none);
    posix_spawnattr_setsigdefault(attr, &all);
    posix_spawnattr_setpgroup(attr, 0);
    return posix_spawnattr_setflags(attr,
                                    (short)(own | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
}
