/* The backup thread: copies the database while it is written to, one copy at a time. */
#ifndef TANDEM_SERVER_BACKUP_H
#define TANDEM_SERVER_BACKUP_H

#include "base/error.h"
#include "proto/names.h"
#include "server/rpc/call.h"

struct backup;

int backup_new(struct backup **out, const char *data_dir, struct error *err);
/* Gives up a copy in hand. */
void backup_free(struct backup *b);
/* Any thread; the call gets a BackupReply when the copy is whole, checked and on disk. */
void backup_post(struct backup *b, struct call *c, const BackupRequest *request);

#endif
