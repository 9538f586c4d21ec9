/* Is there room on the disk of the data folder, and under the limit of file sizes? Without it
 * nothing new begins, so that what runs can still be written down: a part of the disk is kept for
 * that. */
#ifndef TANDEM_SERVER_ROOM_H
#define TANDEM_SERVER_ROOM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct room;

int room_new(struct room **out, const char *data_dir, struct error *err);
void room_free(struct room *r);

/* Looks at the disk; one thread. True: it has become full, or isn't any more. */
bool room_look(struct room *r);
/* Any thread. "the disk is full: ..." or "files may have at most ..." into why (may be NULL), if it
 * is. */
bool room_is_out(struct room *r, char *why, size_t size);

#endif
