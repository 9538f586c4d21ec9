/* How fast are rows of packed documents read? Ours against jansson, the same rows in one run; ids
 * of a vocabulary of 128,256. rows_bench [TOKENS [ROWS]] */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/rng.h"
#include "runtime/data/packed_row.h"

#define VOCAB 128256

static void put_list(struct buf *b, const char *key, int64_t n, int64_t row)
{
    buf_printf(b, "%s\"%s\": [", b->data[b->len - 1] == '{' ? "" : ", ", key);
    uint64_t stream = rng_stream(key) + (uint64_t)row;
    for (int64_t i = 0; i < n; i++) {
        uint64_t v = rng_permute(1, stream, VOCAB, (uint64_t)i);
        int64_t x = strcmp(key, "labels") == 0         ? (i % 3 ? (int64_t)v : -100)
                    : strcmp(key, "position_ids") == 0 ? i % 700
                    : strcmp(key, "segment_ids") == 0  ? i / 700
                                                       : (int64_t)v;
        buf_printf(b, "%s%lld", i ? ", " : "", (long long)x);
    }
    buf_putc(b, ']');
}

static int64_t by_jansson(const char *text, size_t len, int32_t *out)
{
    static const char *const keys[] = {"input_ids", "labels", "position_ids", "segment_ids"};
    json_error_t error;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    ASSERT(root);
    int64_t num = 0;
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        json_t *list = json_object_get(root, keys[k]);
        for (size_t i = 0; i < json_array_size(list); i++) {
            out[num++] = (int32_t)json_integer_value(json_array_get(list, i));
        }
    }
    json_decref(root);
    return num;
}

static int64_t by_us(struct packed_row *row, const char *text, size_t len, int64_t tokens)
{
    const struct packed_limits limits = {
        .max_tokens = tokens, .vocab_size = VOCAB, .max_positions = tokens};
    struct row_json j = {.at = text, .end = text + len};
    struct error err = {0};
    if (packed_row_parse(row, &j, &limits, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return 4 * row->num_tokens;
}

/* Processor time: the box may be busy. */
static int64_t cpu_ns(void)
{
    struct timespec t;
    ASSERT(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void say(const char *who, int64_t rows, size_t bytes, int64_t ns)
{
    double s = (double)ns * 1e-9;
    printf("%-8s %9.0f rows/s  %7.1f MB/s  %.3f ms a row, of processor time\n", who,
           (double)rows / s, (double)bytes * 1e-6 / s, 1e3 * s / (double)rows);
}

int main(int argc, char **argv)
{
    int64_t tokens = argc > 1 ? atoll(argv[1]) : 2048, rows = argc > 2 ? atoll(argv[2]) : 500;
    struct buf text = {0};
    size_t *begin = malloc(((size_t)rows + 1) * sizeof *begin);
    int32_t *out = malloc((size_t)tokens * 4 * sizeof *out);
    ASSERT(begin && out && tokens > 0);
    for (int64_t r = 0; r < rows; r++) {
        begin[r] = text.len;
        buf_putc(&text, '{');
        put_list(&text, "input_ids", tokens, r);
        put_list(&text, "labels", tokens, r);
        put_list(&text, "position_ids", tokens, r);
        put_list(&text, "segment_ids", tokens, r);
        buf_puts(&text, "}\n");
    }
    begin[rows] = text.len;
    printf("%lld rows of %lld tokens, %.1f MB\n", (long long)rows, (long long)tokens,
           (double)text.len * 1e-6);
    struct packed_row row = {0};
    for (int round = 0; round < 3; round++) {
        int64_t numbers = 0, t0 = cpu_ns();
        for (int64_t r = 0; r < rows; r++) {
            numbers += by_us(&row, text.data + begin[r], begin[r + 1] - begin[r], tokens);
        }
        int64_t t1 = cpu_ns();
        for (int64_t r = 0; r < rows; r++) {
            numbers -= by_jansson(text.data + begin[r], begin[r + 1] - begin[r], out);
        }
        int64_t t2 = cpu_ns();
        ASSERT(numbers == 0);
        say("ours", rows, text.len, t1 - t0);
        say("jansson", rows, text.len, t2 - t1);
    }
    packed_row_free(&row);
    buf_free(&text);
    free(begin);
    free(out);
    return 0;
}
