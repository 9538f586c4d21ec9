/* Any bytes as a row of packed documents: refused in words, or within its limits and whole. However
 * the bytes come in, in one piece or in many, the answer is the same. The first 4 bytes are the
 * limits and the size of the pieces. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/packed_row.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each piece lies in memory of its own, so that a read beyond it is found. */
struct pieces {
    const uint8_t *at, *end;
    size_t step;
    char *piece;
};

static int next_piece(void *ctx, const char **at, const char **end, struct error *err)
{
    struct pieces *p = ctx;
    (void)err;
    size_t left = (size_t)(p->end - p->at), n = left < p->step ? left : p->step;
    free(p->piece);
    p->piece = malloc(n + !n);
    ASSERT(p->piece);
    memcpy(p->piece, p->at, n);
    p->at += n;
    *at = p->piece;
    *end = p->piece + n;
    return n > 0;
}

static int parse(struct packed_row *row, const struct packed_limits *limits, const uint8_t *data,
                 size_t size, size_t step, struct error *err)
{
    struct pieces p = {.at = data, .end = data + size, .step = step};
    struct row_json j = {.more = next_piece, .ctx = &p};
    int rc = packed_row_parse(row, &j, limits, err);
    free(p.piece);
    return rc;
}

static void check_row(const struct packed_row *row, const struct packed_limits *limits)
{
    ASSERT(row->num_tokens >= 1 && row->num_tokens <= limits->max_tokens);
    int64_t targets = 0;
    for (int64_t i = 0; i < row->num_tokens; i++) {
        int32_t label = row->labels.at[i], segment = row->segments.at[i];
        ASSERT(row->ids.at[i] >= 0 && row->ids.at[i] < limits->vocab_size);
        ASSERT(label == PACKED_ROW_IGNORED || (label >= 0 && label < limits->vocab_size));
        ASSERT(row->positions.at[i] >= 0 && row->positions.at[i] <= row->max_position);
        ASSERT(row->max_position < limits->max_positions);
        ASSERT(i == 0 ? segment == 0 : (uint32_t)(segment - row->segments.at[i - 1]) <= 1);
        targets += label != PACKED_ROW_IGNORED;
    }
    ASSERT(row->num_targets == targets);
    ASSERT(row->attended >= row->num_tokens &&
           row->attended <= row->num_tokens * (row->num_tokens + 1) / 2);
}

static void same_list(const struct row_ints *a, const struct row_ints *b, int64_t n)
{
    ASSERT(memcmp(a->at, b->at, (size_t)n * sizeof *a->at) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4) {
        return 0;
    }
    const int64_t max_tokens = data[0] + 1;
    const struct packed_limits limits = {.max_tokens = max_tokens,
                                         .vocab_size = data[1] * 600 + 1,
                                         .max_positions = max_tokens + data[2]};
    struct packed_row whole = {0}, cut = {0};
    struct error err = {0}, other = {0};
    int rc = parse(&whole, &limits, data + 4, size - 4, size, &err);
    ASSERT(parse(&cut, &limits, data + 4, size - 4, (size_t)data[3] + 1, &other) == rc);
    ASSERT(strcmp(err.text, other.text) == 0 && (rc == 0 || err.code == ERR_INVALID_ARGUMENT));
    if (rc == 0) {
        check_row(&whole, &limits);
        ASSERT(whole.num_tokens == cut.num_tokens);
        same_list(&whole.ids, &cut.ids, whole.num_tokens);
        same_list(&whole.labels, &cut.labels, whole.num_tokens);
        same_list(&whole.positions, &cut.positions, whole.num_tokens);
        same_list(&whole.segments, &cut.segments, whole.num_tokens);
    }
    packed_row_free(&whole);
    packed_row_free(&cut);
    return 0;
}
