#include "runtime/data/loader.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/rng.h"
#include "plan/plan.h"
#include "runtime/data/formats.h"
#include "runtime/data/packed_source.h"

/* With these no product of two below leaves 63 bits. */
#define SEQ_LEN_MAX ((int64_t)1 << 31)
#define BATCH_MAX ((int64_t)1 << 31)

/* Rows that a message names at most. */
#define NAMED_ROWS 8

struct loader {
    /* One of them. */
    struct token_file *file;
    struct packed_source *packed;
    uint64_t seed;
    bool shuffled;
    int64_t seq_len;
    int64_t stride; /* tokens from one sample's first to the next one's */
    int64_t num_samples;
    int64_t global_batch_size;
    int64_t first_row; /* of this rank's share of a step */
    int64_t num_rows;
    int64_t micro_batch_size;
    int64_t vocab_size;
    int32_t *window; /* owned; seq_len + 1 */
};

static int check_sizes(const struct loader_options *o, struct error *err)
{
    if (o->seq_len < 1 || o->seq_len >= SEQ_LEN_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT, "seq_len is %lld; 1 to 2^31 - 1 are possible",
                         (long long)o->seq_len);
    }
    if (o->global_batch_size < 1 || o->global_batch_size >= BATCH_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "global_batch_size is %lld; 1 to 2^31 - 1 are possible",
                         (long long)o->global_batch_size);
    }
    if (o->data_size < 1 || o->data_rank < 0 || o->data_rank >= o->data_size ||
        o->global_batch_size % o->data_size != 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "data rank %d of %d can't share a global_batch_size of %lld", o->data_rank,
                         o->data_size, (long long)o->global_batch_size);
    }
    int64_t rows = o->global_batch_size / o->data_size;
    if (o->micro_batch_size < 1 || rows % o->micro_batch_size != 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "micro_batch_size %lld doesn't divide the %lld samples of a rank",
                         (long long)o->micro_batch_size, (long long)rows);
    }
    return 0;
}

/* One of two words. */
static int choose(const char *key, const char *word, const char *no, const char *yes, bool *out,
                  struct error *err)
{
    *out = strcmp(word, yes) == 0;
    if (!*out && strcmp(word, no) != 0) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s is \"%.64s\"; %s and %s are possible", key,
                         word, no, yes);
    }
    return 0;
}

static int count_samples(struct loader *l, const struct loader_options *o, bool back_to_back,
                         struct error *err)
{
    int64_t tokens = formats_num_tokens(l->file);
    if (o->expected_tokens != 0 && o->expected_tokens != tokens) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "%s: has %lld tokens, had %lld when the job was planned", o->path,
                         (long long)tokens, (long long)o->expected_tokens);
    }
    /* The plan counts its steps by the same rule. */
    DataFacts facts = DATA_FACTS__INIT;
    facts.num_tokens = tokens;
    SourceSpec source = SOURCE_SPEC__INIT;
    source.window = (char *)(uintptr_t)o->window;
    l->num_samples = plan_samples_per_epoch(&facts, &source, l->seq_len);
    l->stride = back_to_back ? l->seq_len + 1 : l->seq_len;
    if (l->num_samples == 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: has %lld tokens; one sample of seq_len %lld needs %lld", o->path,
                         (long long)tokens, (long long)l->seq_len, (long long)l->seq_len + 1);
    }
    return 0;
}

static int open_windows(struct loader *l, const struct loader_options *o, struct error *err)
{
    enum data_format format;
    bool back_to_back;
    if (formats_parse(o->format, &format, err) != 0 ||
        choose("window", o->window, "T", "T+1", &back_to_back, err) != 0) {
        return -1;
    }
    if (format == DATA_TEXT && strcmp(o->tokenizer, "bytes") != 0) {
        return error_set(err, ERR_UNIMPLEMENTED, "tokenizer is \"%.64s\"; bytes is built",
                         o->tokenizer);
    }
    if (formats_open(&l->file, o->roots, o->path, format, err) != 0 ||
        count_samples(l, o, back_to_back, err) != 0) {
        return -1;
    }
    l->window = malloc(((size_t)l->seq_len + 1) * sizeof *l->window);
    if (!l->window) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory for a sample");
    }
    return 0;
}

static int open_rows(struct loader *l, const struct loader_options *o, struct error *err)
{
    struct packed_source_options options = {
        .path = o->path,
        .roots = o->roots,
        .seq_len = o->seq_len,
        .vocab_size = o->vocab_size,
        .rows_a_step = l->num_rows,
        .expected_rows = o->expected_rows,
        .expected_bytes = o->expected_bytes,
    };
    if (packed_source_open(&l->packed, &options, err) != 0) {
        return -1;
    }
    l->num_samples = packed_source_num_rows(l->packed);
    return 0;
}

static int set_up(struct loader *l, const struct loader_options *o, struct error *err)
{
    if (choose("order", o->order, "sequential", "shuffled", &l->shuffled, err) != 0) {
        return -1;
    }
    return strcmp(o->format, "tokenized-jsonl") == 0 ? open_rows(l, o, err)
                                                     : open_windows(l, o, err);
}

int loader_open(struct loader **out, const struct loader_options *o, struct error *err)
{
    if (check_sizes(o, err) != 0) {
        return -1;
    }
    struct loader *l = calloc(1, sizeof *l);
    if (!l) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory for the loader");
    }
    l->seed = o->seed;
    l->seq_len = o->seq_len;
    l->global_batch_size = o->global_batch_size;
    l->num_rows = o->global_batch_size / o->data_size;
    l->first_row = l->num_rows * o->data_rank;
    l->micro_batch_size = o->micro_batch_size;
    l->vocab_size = o->vocab_size;
    if (set_up(l, o, err) != 0) {
        loader_close(l);
        return -1;
    }
    *out = l;
    return 0;
}

void loader_close(struct loader *l)
{
    if (!l) {
        return;
    }
    formats_close(l->file);
    packed_source_close(l->packed);
    free(l->window);
    free(l);
}

int64_t loader_num_samples(const struct loader *l)
{
    return l->num_samples;
}

/* Sample g of the endless order -> index in the file. */
static int64_t order(const struct loader *l, int64_t g)
{
    int64_t epoch = g / l->num_samples, i = g % l->num_samples;
    if (!l->shuffled) {
        return i;
    }
    uint64_t stream = rng_stream("data.order") + (uint64_t)epoch;
    return (int64_t)rng_permute(l->seed, stream, (uint64_t)l->num_samples, (uint64_t)i);
}

bool loader_is_packed(const struct loader *l)
{
    return l->packed != NULL;
}

bool loader_can_ignore(const struct loader *l)
{
    return l->packed != NULL;
}

/* The sample that is row `row` of this rank's share of a step. */
static int64_t sample_of(const struct loader *l, int64_t step, int64_t row)
{
    ASSERT(step >= 1 && step <= INT64_MAX / l->global_batch_size);
    return order(l, (step - 1) * l->global_batch_size + l->first_row + row);
}

static int read_window(struct loader *l, int64_t sample, int64_t at, const struct host_batch *out,
                       struct error *err)
{
    size_t row_bytes = (size_t)l->seq_len * sizeof *out->ids;
    if (formats_read(l->file, sample * l->stride, l->seq_len + 1, l->vocab_size, l->window, err) !=
        0) {
        return -1;
    }
    memcpy(out->ids + at, l->window, row_bytes);
    memcpy(out->targets + at, l->window + 1, row_bytes);
    return 0;
}

/* Where row `row` of this rank's share of a step is kept. */
static int64_t slot_of(const struct loader *l, int64_t step, int64_t row)
{
    return step % 2 * l->num_rows + row;
}

static int read_row(struct loader *l, int64_t slot, int64_t sample, int64_t at,
                    const struct host_batch *out, struct error *err)
{
    size_t row_bytes = (size_t)l->seq_len * sizeof *out->ids;
    struct packed_sample packed;
    if (packed_source_get(l->packed, slot, sample, &packed, err) != 0) {
        return -1;
    }
    memcpy(out->ids + at, packed.ids, row_bytes);
    memcpy(out->targets + at, packed.targets, row_bytes);
    memcpy(out->positions + at, packed.positions, row_bytes);
    memcpy(out->segments + at, packed.segments, row_bytes);
    return 0;
}

int loader_read(struct loader *l, int64_t step, int64_t micro_batch, const struct host_batch *out,
                struct error *err)
{
    ASSERT(micro_batch >= 0 && micro_batch < l->num_rows / l->micro_batch_size);
    if (!l->packed && formats_check_size(l->file, err) != 0) {
        return -1;
    }
    for (int64_t i = 0; i < l->micro_batch_size; i++) {
        int64_t row = micro_batch * l->micro_batch_size + i, at = i * l->seq_len;
        int64_t sample = sample_of(l, step, row);
        if ((l->packed ? read_row(l, slot_of(l, step, row), sample, at, out, err)
                       : read_window(l, sample, at, out, err)) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Of windows nothing is read: they have a target at every position. */
static void count_windows(const struct loader *l, struct loader_counts *out)
{
    int64_t tokens = l->num_rows * l->seq_len;
    /* Two sizes below 2^31 make up tokens: times a third one it may not fit. */
    double attended = (double)tokens * ((double)l->seq_len + 1) / 2;
    *out = (struct loader_counts){
        .targets = tokens,
        .tokens = tokens,
        .attended = attended < 4e18 ? tokens * (l->seq_len + 1) / 2 : INT64_MAX,
    };
}

int loader_count_own_targets(struct loader *l, int64_t step, struct loader_counts *out,
                             struct error *err)
{
    if (!l->packed) {
        count_windows(l, out);
        return 0;
    }
    struct loader_counts sum = {0};
    for (int64_t row = 0; row < l->num_rows; row++) {
        struct packed_sample packed;
        if (packed_source_get(l->packed, slot_of(l, step, row), sample_of(l, step, row), &packed,
                              err) != 0) {
            return -1;
        }
        sum.targets += packed.num_targets;
        sum.tokens += packed.num_tokens;
        sum.attended += packed.attended;
    }
    *out = sum;
    return 0;
}

int loader_no_targets(const struct loader *l, int64_t step, struct error *err)
{
    ASSERT(l->packed);
    struct buf lines = {0};
    int64_t num = l->global_batch_size;
    buf_puts(&lines, "");
    for (int64_t j = 0; j < num && j < NAMED_ROWS; j++) {
        int64_t sample = order(l, (step - 1) * num + j);
        buf_printf(&lines, "%s%lld", j ? ", " : "", (long long)sample + 1);
    }
    error_set(err, ERR_INVALID_ARGUMENT,
              "%s: every label of the step's %lld rows is -100, so there is nothing to learn "
              "(line%s %s%s); remove such rows, or raise global_batch_size",
              packed_source_path(l->packed), (long long)num, num > 1 ? "s" : "", lines.data,
              num > NAMED_ROWS ? ", ..." : "");
    buf_free(&lines);
    return -1;
}
