/* The verbs, in the order in which help lists them. */
#include <stddef.h>

#include "clients/cli/cli.h"

extern const struct verb verb_version;

const struct verb *const cli_verbs[] = {
    &verb_version,
    NULL,
};
