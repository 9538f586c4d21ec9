/* Rows of one attempt as bytes, column by column: steps and tokens as differences, numbers as what
 * differs from the number before. Every bit comes back, but for which NaN a NaN is. With a checksum
 * that finds damage (it is no seal). Private to server/store and its tests. */
#ifndef TANDEM_SERVER_STORE_METRIC_CODEC_H
#define TANDEM_SERVER_STORE_METRIC_CODEC_H

#include "base/buf.h"
#include "server/store/metric_row.h"

/* num 1 .. METRIC_CHUNK_STEPS rows by ascending step. */
void metric_pack_rows(const struct metric_row *rows, size_t num, struct buf *out);
/* rows: room for METRIC_CHUNK_STEPS. -1: damaged, or a step that is not in first .. last. */
int metric_unpack_rows(const void *data, size_t len, int32_t attempt, int64_t first, int64_t last,
                       struct metric_row *rows, size_t *num);

/* num 1 .. METRIC_CHUNK_BLOCKS, none of them empty. */
void metric_pack_extremes(const struct metric_extremes *list, size_t num, struct buf *out);
/* list: room for METRIC_CHUNK_BLOCKS. */
int metric_unpack_extremes(const void *data, size_t len, int32_t attempt, int64_t first,
                           int64_t last, struct metric_extremes *list, size_t *num);

/* Makes the checksum of bytes right, whatever they are: for the fuzzer. */
void metric_codec_sign(void *data, size_t len);

#endif
