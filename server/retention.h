/* The sweep thread: what is kept of jobs that ended long ago (RetentionConfig), and what a database
 * of an older tandemd needs to have done to it.
 *
 * It works in rounds, of pieces that the owner runs as one mail each, a few milliseconds long, with
 * pauses of several times what the last piece took: rows that come in never wait for it long. A
 * round that ends anywhere, with the process too, is begun anew: every piece can be done again. */
#ifndef TANDEM_SERVER_RETENTION_H
#define TANDEM_SERVER_RETENTION_H

#include "base/error.h"
#include "base/mailbox.h"
#include "proto/names.h"

struct retention;

/* config: copied; NULL = defaults. */
int retention_new(struct retention **out, const RetentionConfig *config, const char *data_dir,
                  struct mailbox *owner, struct error *err);
/* Ends the thread, before the owner's ends; free comes after the controller's. */
void retention_stop(struct retention *r);
void retention_free(struct retention *r);

#endif
