/* Copies of a database: made while it is written to, checked, and made fit to be served again. Used
 * beside the owner, on connections of its own. */
#ifndef TANDEM_SERVER_STORE_BACKUP_H
#define TANDEM_SERVER_STORE_BACKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct store_copy {
    int64_t size_bytes;
    int64_t num_jobs;
    int32_t schema_version;
    char sha256[65]; /* of the file */
};

/* A consistent copy of the database at `from` as the new file `to` (0600): of one moment, whatever
 * is committed meanwhile; nobody is held up. It is checked (store_copy_check, and row by row count
 * against the original), synced and only then gets its name; before it is to.partial, which is
 * removed if anything fails. go_on is asked often; false: given up. */
int store_backup(const char *from, const char *to, bool (*go_on)(void *arg), void *arg,
                 struct store_copy *out, struct error *err);

/* Is the file a whole database of ours that this program can serve: its pages, its references, its
 * migrations? */
int store_copy_check(const char *path, struct store_copy *out, struct error *err);

/* A plain copy of a file, 0600, synced; to must not exist. */
int store_copy_file(const char *from, const char *to, struct error *err);

/* ---- after a restore ---- */
/* What job folders show of attempts that the restored database may not know. */
struct store_seen {
    int64_t job;
    int32_t attempt; /* the highest; 0 = none */
    bool exported;   /* it has left a result */
};
/* Makes the database at path safe to serve, in one transaction:
 * - no id is given out again: sequences go beyond those of `old` (the database it replaces; NULL or
 *   unreadable: far beyond), and beyond all jobs seen;
 * - no attempt is trusted: all are over, and each job that had one, or of which a higher one was
 *   seen, gets the number after the highest one as an attempt that is over;
 * - jobs that ran are queued again; a stop that was asked for is carried out; a job that went
 *   further than the database knows (a higher attempt, an export) is held, and says so.
 * - tokens that were revoked, tenants and users that were disabled in `old` stay so.
 * Then it is brought to this program's schema. */
int store_restored(const char *path, const char *old, const struct store_seen *seen,
                   size_t num_seen, struct error *err);

#endif
