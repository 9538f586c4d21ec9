/* What a tandem-node that is gone had not told: the records of its journal (proto/journal.h) that
 * the database doesn't have yet. Blocking; launch thread.
 *
 * A piece at a time: its owner commits what it got and asks again, from the number that it is at
 * then. What is known to be committed is removed on the way, and the journal as a whole once it
 * holds nothing new: only then is the attempt over. */
#ifndef TANDEM_SERVER_REPLAY_H
#define TANDEM_SERVER_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/names.h"

#define REPLAY_RECORDS_MAX 4000

struct replay {
    WorkerUp **ups; /* owned; numbers follow each other, the first on what was asked for */
    size_t num_ups;
    /* Nothing new is there, and something was lost: how. "" = nothing was. */
    char loss[320];
};

/* data_dir: of the server; the path is made from it and the numbers, and no link below it is
 * followed. acked_seq: what the database has. -1: err; it can't be read now, nothing was changed.
 */
int replay_read(struct replay *out, const char *data_dir, int64_t job_id, int32_t attempt,
                int64_t acked_seq, struct error *err);
void replay_free(struct replay *r);

#endif
