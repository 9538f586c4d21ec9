/* Do data and model go together, and what does the data make of a step? */
#include "plan/plan.h"

#include <string.h>

#include "model/family.h"
#include "plan/plan_parts.h"

/* The byte tokenizer's ids. */
#define BYTE_VOCAB 256

/* Rows of packed documents; the limits of each row are checked again when it is read. */
static int check_rows(const JobSpec *spec, const SourceSpec *source, const DataFacts *facts,
                      struct error *err)
{
    int64_t seq_len = spec->training->seq_len;
    if (facts->longest_row > seq_len) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "data.train: %s:%lld: the row has %lld tokens, training.seq_len is %lld; "
                         "cut the row, or raise seq_len",
                         source->path, (long long)facts->longest_row_line,
                         (long long)facts->longest_row, (long long)seq_len);
    }
    if (facts->max_position >= seq_len) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "data.train: %s holds position %lld; with training.seq_len %lld it may be "
                         "%lld at most: positions begin at 0 in each document",
                         source->path, (long long)facts->max_position, (long long)seq_len,
                         (long long)seq_len - 1);
    }
    if (facts->num_targets < 1 && facts->scanned_rows == facts->num_rows) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "data.train: %s: every label of its %lld rows is -100, so there is "
                         "nothing to learn",
                         source->path, (long long)facts->num_rows);
    }
    return 0;
}

static int too_large_token(const SourceSpec *source, const DataFacts *facts, int64_t vocab_size,
                           struct error *err)
{
    if (facts->max_token_line > 0) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "data.train: %s:%lld: %s holds token %lld, the model's vocab_size is %lld "
                         "(no line of it holds a larger one)",
                         source->path, (long long)facts->max_token_line,
                         facts->max_token_is_label ? "labels" : "input_ids",
                         (long long)facts->max_token, (long long)vocab_size);
    }
    return error_set(err, ERR_FAILED_PRECONDITION,
                     "data.train: %s holds token %lld, the model's vocab_size is %lld (read as %s)",
                     source->path, (long long)facts->max_token, (long long)vocab_size,
                     source->format);
}

int plan_check_source(const JobSpec *spec, const SourceSpec *source, const DataFacts *facts,
                      const ModelConfig *config, struct error *err)
{
    if (strcmp(source->format, "text") == 0 && config->vocab_size < BYTE_VOCAB) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "data.tokenizer: bytes makes ids 0 to %d, the model's vocab_size is %lld",
                         BYTE_VOCAB - 1, (long long)config->vocab_size);
    }
    if (!facts) {
        return 0;
    }
    if (facts->looks_like && strcmp(facts->looks_like, "tokenized-jsonl") == 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "data.train: %s holds JSON lines with input_ids, and format text would "
                         "train on the letters of the JSON; use format: tokenized-jsonl",
                         source->path);
    }
    if (facts->max_token >= config->vocab_size) {
        return too_large_token(source, facts, config->vocab_size, err);
    }
    int64_t seq_len = spec->training->seq_len;
    if (plan_samples_per_epoch(facts, source, seq_len) < 1) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "data.train: %s holds %lld tokens, one sample of training.seq_len %lld "
                         "needs %lld",
                         source->path, (long long)facts->num_tokens, (long long)seq_len,
                         (long long)seq_len + 1);
    }
    return facts->num_rows > 0 ? check_rows(spec, source, facts, err) : 0;
}

/* Facts of packed rows, NULL where the data is no such. */
static const DataFacts *rows_of(const Plan *plan)
{
    const DataFacts *facts = plan->train[0];
    return facts->num_rows > 0 && facts->num_tokens > 0 ? facts : NULL;
}

void plan_set_flops(Plan *plan)
{
    const DataFacts *rows = rows_of(plan);
    double causal = ((double)plan->spec->training->seq_len + 1) / 2;
    /* Packed: the documents' own. */
    double mean_attended = rows && rows->mean_attended > 0 ? rows->mean_attended : causal;
    plan->has_flops_per_token = 1;
    plan->flops_per_token = family_flops_per_token(plan->model->config, mean_attended);
}

void plan_add_data_notes(Plan *plan)
{
    const DataFacts *rows = rows_of(plan), *facts = plan->train[0];
    if (facts->looks_like && facts->looks_like[0]) {
        plan_add_note(
            plan,
            "data.train: %s looks like JSON lines: format text trains on the JSON itself, "
            "braces, keys and escapes",
            plan->spec->data->train[0]->path);
    }
    if (!rows) {
        return;
    }
    double scanned = (double)rows->scanned_rows, tokens = (double)rows->num_tokens;
    plan_add_note(plan,
                  "rows hold %.4g of %lld tokens on average; %.3g %% of the tokens have a target, "
                  "and one attends to %.4g on average",
                  tokens / scanned, (long long)plan->spec->training->seq_len,
                  100.0 * (double)rows->num_targets / tokens, rows->mean_attended);
    if (rows->scanned_rows < rows->num_rows) {
        plan_add_note(plan,
                      "only the first %lld of %lld rows were looked at; the others are "
                      "checked as they are read",
                      (long long)rows->scanned_rows, (long long)rows->num_rows);
    }
}
