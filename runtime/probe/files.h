/* The files of an answer: where they may lie, which ones they were, and are they still the same?
 *
 * A file is told by device, inode, size and the times of its last change; that a file was looked
 * for and wasn't there belongs to the answer as well. */
#ifndef TANDEM_RUNTIME_PROBE_FILES_H
#define TANDEM_RUNTIME_PROBE_FILES_H

#include <stdbool.h>

#include "base/roots.h"
#include "proto/names.h"

/* As the request has them. What is opened below the roots is added to reply->files, unless reply is
 * NULL. Borrows both. */
struct roots files_roots(const ProbeRequest *request, ProbeReply *reply);

/* Is every one of them as it was? Opens each below roots, and reads none. */
bool files_unchanged(const struct roots *roots, FileIdentity *const *known, size_t num);

#endif
