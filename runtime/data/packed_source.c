#include "runtime/data/packed_source.h"

#include <stdlib.h>
#include <string.h>

#define LISTS 4 /* ids, targets, positions, segments */

struct slot {
    int64_t idx; /* row that is in it; -1 = none */
    int64_t num_tokens, num_targets, attended;
};

struct packed_source {
    struct row_file *file;
    struct packed_limits limits;
    struct packed_row row;
    int64_t seq_len;
    int64_t num_slots;
    struct slot *slots; /* owned */
    int32_t *lists;     /* owned; [num_slots, LISTS, seq_len] */
};

static int check_expected(const struct packed_source *s, const struct packed_source_options *o,
                          struct error *err)
{
    int64_t rows = row_file_num_rows(s->file), bytes = row_file_size_bytes(s->file);
    if (o->expected_rows != 0 && o->expected_rows != rows) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "%s: has %lld rows, had %lld when the job was planned", o->path,
                         (long long)rows, (long long)o->expected_rows);
    }
    if (o->expected_bytes != 0 && o->expected_bytes != bytes) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "%s: has %lld bytes, had %lld when the job was planned", o->path,
                         (long long)bytes, (long long)o->expected_bytes);
    }
    return 0;
}

static int set_up(struct packed_source *s, const struct packed_source_options *o, struct error *err)
{
    const int64_t any = PACKED_ROW_ANY;
    struct row_file_options file = {.path = o->path, .roots = o->roots};
    int64_t row_bytes = LISTS * o->seq_len * (int64_t)sizeof(int32_t);
    int64_t slots = PACKED_SOURCE_CACHE_BYTES / row_bytes;
    slots = slots > 2 * o->rows_a_step ? 2 * o->rows_a_step : slots;
    s->seq_len = o->seq_len;
    s->num_slots = slots > 0 ? slots : 1;
    s->limits = (struct packed_limits){
        .max_tokens = o->seq_len < PACKED_ROW_MAX_TOKENS ? o->seq_len : PACKED_ROW_MAX_TOKENS,
        .vocab_size = o->vocab_size > 0 && o->vocab_size < any ? o->vocab_size : any,
        .max_positions = o->seq_len < any ? o->seq_len : any,
    };
    s->slots = malloc((size_t)s->num_slots * sizeof *s->slots);
    s->lists = malloc((size_t)(s->num_slots * row_bytes));
    if (!s->slots || !s->lists) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory for the rows of a step");
    }
    for (int64_t i = 0; i < s->num_slots; i++) {
        s->slots[i].idx = -1;
    }
    return row_file_open(&s->file, &file, err) == 0 ? check_expected(s, o, err) : -1;
}

int packed_source_open(struct packed_source **out, const struct packed_source_options *o,
                       struct error *err)
{
    struct packed_source *s = calloc(1, sizeof *s);
    if (!s) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory for the data");
    }
    if (set_up(s, o, err) != 0) {
        packed_source_close(s);
        return -1;
    }
    *out = s;
    return 0;
}

void packed_source_close(struct packed_source *s)
{
    if (!s) {
        return;
    }
    row_file_close(s->file);
    packed_row_free(&s->row);
    free(s->slots);
    free(s->lists);
    free(s);
}

const char *packed_source_path(const struct packed_source *s)
{
    return row_file_path(s->file);
}

int64_t packed_source_num_rows(const struct packed_source *s)
{
    return row_file_num_rows(s->file);
}

static void fill_list(int32_t *out, const struct row_ints *from, int64_t n, int64_t seq_len,
                      int32_t padding)
{
    memcpy(out, from->at, (size_t)n * sizeof *out);
    for (int64_t i = n; i < seq_len; i++) {
        out[i] = padding;
    }
}

static int fill(struct packed_source *s, int64_t slot, int64_t idx, struct error *err)
{
    struct packed_row *row = &s->row;
    struct slot *entry = &s->slots[slot];
    int64_t T = s->seq_len;
    int32_t *lists = s->lists + slot * LISTS * T;
    entry->idx = -1;
    if (row_file_read(s->file, idx, &s->limits, row, err) != 0) {
        return -1;
    }
    int64_t n = row->num_tokens;
    fill_list(lists, &row->ids, n, T, 0);
    fill_list(lists + T, &row->labels, n, T, PACKED_ROW_IGNORED);
    fill_list(lists + 2 * T, &row->positions, n, T, 0);
    fill_list(lists + 3 * T, &row->segments, n, T, row->segments.at[n - 1] + 1);
    *entry = (struct slot){
        .idx = idx, .num_tokens = n, .num_targets = row->num_targets, .attended = row->attended};
    return 0;
}

int packed_source_get(struct packed_source *s, int64_t slot, int64_t idx, struct packed_sample *out,
                      struct error *err)
{
    slot = slot < s->num_slots ? slot : s->num_slots - 1;
    const struct slot *entry = &s->slots[slot];
    if (entry->idx != idx && fill(s, slot, idx, err) != 0) {
        return -1;
    }
    const int32_t *lists = s->lists + slot * LISTS * s->seq_len;
    *out = (struct packed_sample){
        .ids = lists,
        .targets = lists + s->seq_len,
        .positions = lists + 2 * s->seq_len,
        .segments = lists + 3 * s->seq_len,
        .num_tokens = entry->num_tokens,
        .num_targets = entry->num_targets,
        .attended = entry->attended,
    };
    return 0;
}
