/* Which of this host's users the processes of a tenant run as. Without entries in the config all
 * run as tandemd's own; with any, a tenant without one has no jobs. Fixed once made. */
#ifndef TANDEM_SERVER_RUN_AS_H
#define TANDEM_SERVER_RUN_AS_H

#include "base/error.h"
#include "proto/names.h"

struct run_as;

/* What is said where a tenant has none. */
#define RUN_AS_NOBODY "the server's config names no user for the jobs of this tenant (run_as)"

/* *out: NULL where the config has no entries. Asks tandem-spawn (in bin_dir) about each of them,
 * and lets other users pass through the data folder, but look at nothing in it. Borrows config. */
int run_as_new(struct run_as **out, const ServerConfig *config, const char *bin_dir,
               const char *data_dir, struct error *err);
void run_as_free(struct run_as *r);

/* "": tandemd's own user; NULL: the tenant has none, and must not run. */
const char *run_as_user(const struct run_as *r, const char *tenant);

#endif
