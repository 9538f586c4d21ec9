/* Paths of a job file that lead into the server's own data folder: only what jobs of the caller's
 * tenant have left there may be read, and the refusal is the same whether there is such a job or
 * not. By the words of the path alone, before anything looks at it; where a path leads through
 * links is the business of roots and run_as. */
#ifndef TANDEM_SERVER_DATA_PATHS_H
#define TANDEM_SERVER_DATA_PATHS_H

#include "server/rights.h"
#include "server/store/store.h"

/* Owner thread. data_dir: absolute, without links. */
int data_paths_check(struct store *s, const char *data_dir, const JobSpec *spec,
                     const struct caller *who, struct error *err);

#endif
