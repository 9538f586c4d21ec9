/* Where a way that leads out of a folder goes on: for roots.c alone. */
#ifndef TANDEM_BASE_ROOTS_LINK_H
#define TANDEM_BASE_ROOTS_LINK_H

#include <limits.h>
#include <stdbool.h>

/* Past "/" and "." words: at the next word, or the end. */
const char *roots_skip(const char *path);

/* Walks rest below dir (the open folder root), following no link but reading each, and touching
 * nothing outside. True: out is the absolute path at which the way leaves the folder, to be looked
 * at like a path that was just given. False: it doesn't leave, or can't be walked. */
bool roots_follow(int dir, const char *root, const char *rest, char out[PATH_MAX]);

#endif
