/* Packed rows as samples of one length: padding behind a row's documents has label -100, position
 * 0, id 0 and a segment of its own. A step's rows are read twice, to count (maybe in the step
 * before) and to train, so those of two steps are kept, up to a bound: in a slot each, by their
 * place in the rank's share of an even and an odd step. */
#ifndef TANDEM_RUNTIME_DATA_PACKED_SOURCE_H
#define TANDEM_RUNTIME_DATA_PACKED_SOURCE_H

#include "runtime/data/row_file.h"

#define PACKED_SOURCE_CACHE_BYTES ((int64_t)64 << 20)

struct packed_source;

struct packed_source_options {
    const char *path;
    const struct roots *roots; /* borrowed for the open */
    int64_t seq_len;
    int64_t vocab_size;  /* 0 = any below 2^31 */
    int64_t rows_a_step; /* of this rank */
    /* As the file was when the job was planned; 0 = not known. */
    int64_t expected_rows, expected_bytes;
};

/* Belongs to the source, until the next get. Each [seq_len]. */
struct packed_sample {
    const int32_t *ids, *targets, *positions, *segments;
    int64_t num_tokens, num_targets, attended; /* as struct packed_row */
};

int packed_source_open(struct packed_source **out, const struct packed_source_options *options,
                       struct error *err);
void packed_source_close(struct packed_source *s);
const char *packed_source_path(const struct packed_source *s);
int64_t packed_source_num_rows(const struct packed_source *s);
/* Row idx of the file, which is to be in `slot`: below 2 rows_a_step. */
int packed_source_get(struct packed_source *s, int64_t slot, int64_t idx, struct packed_sample *out,
                      struct error *err);

#endif
