/* tandemd --restore: puts a backup in the place of a data folder's database. */
#ifndef TANDEM_SERVER_RESTORE_H
#define TANDEM_SERVER_RESTORE_H

#include "base/error.h"

struct store;

/* The folder is locked by the caller, no server runs on it. Checks a copy of file, stops the
 * gangs of the folder's jobs (their attempts are not in the backup as they are now), makes the copy
 * safe to serve (store_restored), keeps the database that was there as tandem.db.before-TIME, puts
 * the new one in its place. Says on stdout what it did. A restore that is cut short is told by
 * restore_pending. */
int restore_run(const char *file, const char *data_dir, struct error *err);

/* -1: a restore has begun in this folder and not ended; err says to run it again. */
int restore_pending(const char *data_dir, struct error *err);
/* -1: job folders are there that the database knows nothing of, so it has lost what was
 * acknowledged (it was removed, emptied, or an older copy was put in its place): their numbers
 * would be given out again. err says what to do. */
int restore_needed(struct store *store, const char *data_dir, struct error *err);

#endif
