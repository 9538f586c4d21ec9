#include "runtime/data/row_facts.h"

#include "base/clock.h"
#include "runtime/data/row_file.h"

/* Fewer targets than this may be their own ids by chance. */
#define UNSHIFTED_MIN 16

struct totals {
    int64_t tokens, targets, unshifted, shifted, attended;
};

static void add(DataFacts *facts, struct totals *t, const struct packed_row *row, int64_t idx)
{
    t->tokens += row->num_tokens;
    t->targets += row->num_targets;
    t->unshifted += row->num_unshifted;
    t->shifted += row->num_shifted;
    t->attended += row->attended;
    if (row->num_tokens > facts->longest_row) {
        facts->longest_row = row->num_tokens;
        facts->longest_row_line = idx + 1;
    }
    if (row->max_id > facts->max_token) {
        facts->max_token = row->max_id;
        facts->max_token_line = idx + 1;
        facts->max_token_is_label = row->max_is_label;
    }
    if (row->max_position > facts->max_position) {
        facts->max_position = row->max_position;
    }
}

/* Hugging Face's models shift labels themselves; here it would teach a model to repeat its input.
 */
static int check_shifted(const char *path, const struct totals *t, struct error *err)
{
    if (t->targets < UNSHIFTED_MIN || t->unshifted < t->targets || t->shifted == t->targets) {
        return 0;
    }
    return error_set(err, ERR_FAILED_PRECONDITION,
                     "%s: each of its %lld labels is the id at its own place, so they are not "
                     "shifted; labels[t] is the target of input_ids[t], the id at t + 1: write "
                     "labels[1:] + [-100]",
                     path, (long long)t->targets);
}

static bool has_time(const struct row_file *f, int64_t until_ms)
{
    return row_file_at_bytes(f) < ROW_FACTS_SCAN_BYTES && clock_mono_ms() < until_ms;
}

static int scan(struct row_file *f, DataFacts *facts, struct totals *t, struct error *err)
{
    const struct packed_limits limits = {
        .max_tokens = PACKED_ROW_MAX_TOKENS,
        .vocab_size = PACKED_ROW_ANY,
        .max_positions = PACKED_ROW_ANY,
    };
    struct packed_row row = {0};
    int rc = 0;
    int64_t i = 0, until_ms = clock_mono_ms() + ROW_FACTS_SCAN_MS;
    for (; rc == 0 && i < row_file_num_rows(f) && (i == 0 || has_time(f, until_ms)); i++) {
        rc = row_file_read(f, i, &limits, &row, err);
        if (rc == 0) {
            add(facts, t, &row, i);
        }
    }
    packed_row_free(&row);
    facts->scanned_rows = i;
    return rc == 0 ? check_shifted(row_file_path(f), t, err) : -1;
}

int row_facts(const struct roots *roots, const char *path, DataFacts *facts, struct error *err)
{
    const struct row_file_options options = {.path = path, .roots = roots};
    struct row_file *f;
    struct totals t = {0};
    if (row_file_open(&f, &options, err) != 0) {
        return -1;
    }
    facts->has_size_bytes = facts->has_num_rows = facts->has_scanned_rows = 1;
    facts->has_num_tokens = facts->has_max_token = facts->has_longest_row = 1;
    facts->has_longest_row_line = facts->has_num_targets = facts->has_max_position = 1;
    facts->has_mean_attended = facts->has_max_token_line = facts->has_max_token_is_label = 1;
    facts->size_bytes = row_file_size_bytes(f);
    facts->num_rows = row_file_num_rows(f);
    int rc = scan(f, facts, &t, err);
    row_file_close(f);
    facts->num_tokens = t.tokens;
    facts->num_targets = t.targets;
    facts->mean_attended = t.tokens > 0 ? (double)t.attended / (double)t.tokens : 0;
    return rc;
}
