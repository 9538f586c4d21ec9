/* Chunks and rollups of curves, as the database has them: a backup that is restored may come from
 * anywhere. The checksum is put right first: it finds damage, and keeps nobody out. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "server/store/metric_codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct metric_row rows[METRIC_CHUNK_STEPS];
    static struct metric_extremes list[METRIC_CHUNK_BLOCKS];
    size_t num;
    uint8_t *copy = malloc(size + 1); /* exact, so that reading beyond is seen */
    ASSERT(copy);
    if (size > 0) {
        memcpy(copy, data, size);
    }
    metric_codec_sign(copy, size);
    if (metric_unpack_rows(copy, size, 1, 1025, 2048, rows, &num) == 0) {
        ASSERT(num >= 1 && num <= METRIC_CHUNK_STEPS);
        for (size_t i = 0; i < num; i++) {
            ASSERT(rows[i].step >= 1025 && rows[i].step <= 2048);
            ASSERT(i == 0 || rows[i].step > rows[i - 1].step);
        }
        /* What was read is written and read as the same. */
        struct buf packed = {0};
        size_t again;
        metric_pack_rows(rows, num, &packed);
        ASSERT(metric_unpack_rows(packed.data, packed.len, 1, 1025, 2048, rows, &again) == 0);
        ASSERT(again == num);
        buf_free(&packed);
    }
    if (metric_unpack_extremes(copy, size, 1, 1025, 2048, list, &num) == 0) {
        ASSERT(num >= 1 && num <= METRIC_CHUNK_BLOCKS);
        for (size_t i = 0; i < num; i++) {
            ASSERT(list[i].first.step >= 1025 && list[i].last.step <= 2048);
        }
    }
    free(copy);
    return 0;
}
