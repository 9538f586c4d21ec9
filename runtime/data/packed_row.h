/* A row of packed documents: one line of a tokenized-jsonl file, an object of flat lists.
 *
 *   input_ids     ids of the tokens
 *   labels        as many: the target of each (already shifted), -100 = none
 *   position_ids  as many, or absent: 0, 1, ... in each document
 *   segment_ids   as many, or absent: all one document. A document's tokens lie together and have
 *                 one number; each next document has a higher one. A last lower one whose labels
 *                 are all -100 is padding
 *   attention_mask  as many, or absent: ones, then zeros for padding
 *
 * Without segment_ids, position_ids have to rise: several documents would see each
 * other. Absent may be null. Other keys are refused, but for those that say nothing about training:
 * names that begin with "_" and packed_row_harmless. Padding is no part of the row here. */
#ifndef TANDEM_RUNTIME_DATA_PACKED_ROW_H
#define TANDEM_RUNTIME_DATA_PACKED_ROW_H

#include "runtime/data/row_json.h"

#define PACKED_ROW_IGNORED (-100)
/* Of a row, whatever the job's seq_len. */
#define PACKED_ROW_MAX_TOKENS ((int64_t)1 << 24)

/* A vocabulary, or positions, of any size. */
#define PACKED_ROW_ANY ((int64_t)1 << 31)

/* What a row may have. */
struct packed_limits {
    int64_t max_tokens; /* training.seq_len; at most PACKED_ROW_MAX_TOKENS, which stands for none */
    int64_t vocab_size; /* ids and targets are below it */
    int64_t max_positions; /* no less than max_tokens; positions are below it */
};

/* Zero = empty; a row is parsed into it again and again. */
struct packed_row {
    /* All have num_tokens entries after a parse. positions: as given, else restarting in each
     * document; segments: 0, 1, 2, ... */
    struct row_ints ids, labels, positions, segments;
    struct row_ints mask;
    int64_t num_tokens;
    int64_t num_targets; /* labels that aren't -100 */
    int64_t attended;    /* sum over the tokens of how many of their document each attends to */
    int32_t max_id;      /* of ids and targets */
    bool max_is_label;   /* none of the ids is as large */
    int32_t max_position;
    /* Targets that are the id at their own place, at the next place. */
    int64_t num_unshifted, num_shifted;
};

/* Reads a line, to behind its newline. On failure the row is worth nothing. */
int packed_row_parse(struct packed_row *row, struct row_json *j, const struct packed_limits *limits,
                     struct error *err);
void packed_row_free(struct packed_row *row);

/* Other keys that may stand in a row and aren't read; ends with NULL. */
extern const char *const packed_row_harmless[];

#endif
