/* Which folders the jobs of each tenant may read: the roots of the server's config. Fixed once
 * made, so every thread may ask. */
#ifndef TANDEM_SERVER_ALLOWED_H
#define TANDEM_SERVER_ALLOWED_H

#include "base/error.h"
#include "proto/names.h"

struct allowed;

/* Without any roots everything is allowed that the processes' user can read, but for what
 * private_dir (NULL = none) holds beside jobs. Borrows roots and private_dir for as long as it
 * lives. */
int allowed_new(struct allowed **out, Roots *const *roots, size_t num, const char *private_dir,
                struct error *err);
void allowed_free(struct allowed *a);

/* What goes along with a probe or a start of a job of that tenant; NULL: everything. A tenant that
 * the config doesn't name has the roots that name no tenant, or else none at all. *out is freed by
 * msg_free. a may be NULL: everything. */
Roots *allowed_for(const struct allowed *a, const char *tenant);
/* A copy of the private folder for the same message, or NULL. */
char *allowed_private(const struct allowed *a);

#endif
