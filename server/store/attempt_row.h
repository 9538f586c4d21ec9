/* How an attempt's columns are read, for the two files that do. Private to server/store. */
#ifndef TANDEM_SERVER_STORE_ATTEMPT_ROW_H
#define TANDEM_SERVER_STORE_ATTEMPT_ROW_H

#include "server/store/rows.h"
#include "server/store/sql.h"

#define ATTEMPT_COLUMNS                                                                            \
    "a.number, a.condition, a.token_sha256, a.node, a.num_devices, a.start_step, a.resume_dir, "   \
    "a.acked_seq, a.pid, a.start_time, a.boot_id, a.created_us, a.ended_us, a.queued_us, "         \
    "a.wait_us, a.device_us, a.yields_to, a.backfills, a.borrowed, a.evicted, a.gone_us"

/* From column `first` on; all zero where the row is NULL (no attempt yet). */
void attempt_row_read(sqlite3_stmt *q, int first, struct attempt_row *out);

#endif
