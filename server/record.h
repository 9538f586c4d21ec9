/* A record of all that the owner takes in: mail, clocks, hashes of new tokens, what the launcher
 * and the probe answered. Together with a copy of the database as it was at the start of the
 * server it is enough to run the controller through the same again and see where it went wrong
 * (tandem-replay).
 *
 * Each start of the server makes record-N.db and record-N.log in the folder, and the oldest go. A
 * step is written after it is committed and answered, in one write: it survives the server's death,
 * and nobody waits for a disk. Folder and files are for the server's user alone: job files are in
 * them, tokens are not. */
#ifndef TANDEM_SERVER_RECORD_H
#define TANDEM_SERVER_RECORD_H

#include "server/controller.h"

/* Starts of the server that are kept, and what one may write. */
#define RECORD_KEPT 8
#define RECORD_MAX_BYTES ((int64_t)256 << 20)

struct record;

/* db: the database, which nobody writes to yet. */
int record_new(struct record **out, const char *dir, const char *db, struct error *err);
/* The same world, recorded from now on. What o says is recorded, too; inner is kept. */
struct world record_world(struct record *r, const struct controller_options *o, struct world inner);
/* In good order: the owner thread has ended. */
void record_free(struct record *r);

#endif
