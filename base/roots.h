/* Folders below which files may be opened, and nowhere else: what a tenant's jobs may read.
 *
 * A path is matched by its words with the longest folder that it lies below, then opened by the
 * kernel beneath that folder (openat2, RESOLVE_BENEATH): no "..", no link and no rename in between
 * leads out. A link may lead from one of the folders into another. A path that leads out gets the
 * same refusal whatever is there, and what lies outside is never touched. */
#ifndef TANDEM_BASE_ROOTS_H
#define TANDEM_BASE_ROOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/error.h"

/* The zero value allows every path. */
struct roots {
    bool limited;            /* only below dirs; with none of them: nothing at all */
    const char *tenant;      /* for messages */
    const char *const *dirs; /* absolute, without ".."; a folder may itself be a link */
    size_t num;
    /* A folder without links in its name: what it holds is refused, however it is reached, but for
     * paths that name a folder jobs/N of it (whose, the server has looked at) and stay in that.
     * NULL = none. */
    const char *hidden;
    /* Told of each file that is opened, and with st NULL of each that isn't there; may be NULL. */
    void (*note)(void *ctx, const char *path, const struct stat *st);
    void *ctx;
};

/* Opens a regular file for reading; a FIFO or a device is an error, not a wait. r may be NULL:
 * every path is allowed. Gives the descriptor; st may be NULL. A path outside is
 * ERR_PERMISSION_DENIED, with the folders that are allowed in the text. */
int roots_open(const struct roots *r, const char *path, struct stat *st, struct error *err);
/* The same, then reads it whole, see fs_read_file. */
int roots_read_file(const struct roots *r, const char *path, size_t max_bytes, char **out,
                    size_t *len, struct error *err);
/* Is path a folder that may be looked into? */
int roots_check_dir(const struct roots *r, const char *path, struct error *err);

#endif
