/* Samples in a fixed global order. The sample set of step s depends on (seed, s, global batch)
 * alone; each data rank reads its own rows of it. One global cursor: consumed samples.
 *
 * A sample is a window of a token stream, or a row of packed documents.
 *
 * Step s (from 1) holds samples (s-1)*G .. s*G-1 of the endless order; sample g of it is index
 * order(g) of the file: sequential g % N, or a Philox-keyed permutation per epoch g / N.
 * Row j of the step belongs to data rank j / (G / data); inside a rank, micro-batch i has rows
 * i*micro .. (i+1)*micro - 1 of its share. So any layout sees the same set. */
#ifndef TANDEM_RUNTIME_DATA_LOADER_H
#define TANDEM_RUNTIME_DATA_LOADER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/roots.h"
#include "proto/names.h"

struct loader;

struct loader_options {
    const char *path;
    const struct roots *roots; /* where path may lie; NULL = anywhere; borrowed for the open */
    const char *format;        /* text, u16, u32 */
    const char *window;        /* T, T+1 */
    const char *tokenizer;     /* bytes */
    const char *order;         /* sequential, shuffled */
    uint64_t seed;
    int64_t seq_len;
    int64_t global_batch_size;
    int64_t vocab_size; /* a token at or above it is an error that names file and position */
    int32_t data_rank, data_size;
    int64_t micro_batch_size;
    /* What the file had when the job was planned: another size would be another order of samples.
     * 0 = not known. */
    int64_t expected_tokens;
    /* The same of rows. */
    int64_t expected_rows, expected_bytes;
};

/* The file must not shrink, one of rows not change at all (checked at each read). */
int loader_open(struct loader **out, const struct loader_options *options, struct error *err);
/* The options as a plan has them; strings are the plan's. -1: the plan lacks a part. */
int loader_options_from_plan(struct loader_options *out, const Plan *plan, int32_t rank);
void loader_close(struct loader *l);

int64_t loader_num_samples(const struct loader *l);

/* Rows are packed documents: positions and segments are filled. Else a row is one document from
 * position 0 on, and they aren't touched. */
bool loader_is_packed(const struct loader *l);
/* A position may have no target (-100): the step's divisor has to be counted. Else every position
 * has one: global batch x seq_len. The plan says the same (plan_can_ignore_targets). */
bool loader_can_ignore(const struct loader *l);

/* One micro-batch in host memory, each [micro * seq_len] int32, written by loader_read. */
struct host_batch {
    int32_t *ids;
    int32_t *targets;   /* already shifted; -100 = ignored */
    int32_t *positions; /* packed alone; restart in each document; below seq_len */
    int32_t *segments;  /* packed alone; attention stays within equal ones of a row */
};
/* step counts from 1, micro_batch from 0. */
int loader_read(struct loader *l, int64_t step, int64_t micro_batch, const struct host_batch *out,
                struct error *err);

/* Of this data rank's rows of a step. Summed over the data ranks: the one divisor of the loss, and
 * what the step's FLOPs follow from. */
struct loader_counts {
    int64_t targets;  /* valid ones */
    int64_t tokens;   /* padding is none */
    int64_t attended; /* sum over the tokens of how many positions each attends to */
};
int loader_count_own_targets(struct loader *l, int64_t step, struct loader_counts *out,
                             struct error *err);
/* Says that the whole step, over all data ranks, has no valid target, and which rows it has.
 * Always -1. */
int loader_no_targets(const struct loader *l, int64_t step, struct error *err);

#endif
