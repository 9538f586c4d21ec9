/* An outbox for tests, over a folder of its own: what puts into it, takes from it as a stream does,
 * and looks at its journal. Each test of it runs between bench_set_up and bench_tear_down, which
 * leaves nothing behind, whatever the test came to; its state is the bench. */
#ifndef TANDEM_TESTS_OUTBOX_BENCH_H
#define TANDEM_TESTS_OUTBOX_BENCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include "runtime/node/outbox.h"

#define BENCH_MAX_BYTES (1 << 20)

struct bench {
    char dir[64], reports[80];
    struct outbox *o; /* NULL = not begun */
    int64_t num_put;
    _Atomic int num_wakes;
};

int bench_set_up(void **state);
int bench_tear_down(void **state);

/* disk_bytes: 0 = as good as no bound. */
void begin_bounded(struct bench *b, bool disk, size_t window_bytes, size_t segment_bytes,
                   int64_t disk_bytes);
void begin(struct bench *b, bool disk, size_t window_bytes, size_t segment_bytes);
/* Frees the outbox; the folder stays for the test to look at. */
void end(struct bench *b);

/* Steps 10, 20, ...: number n is step 10 n, where nothing else has a number. */
void put_steps(struct bench *b, int num);
void put_progress(struct outbox *o, int32_t rank, int64_t step);

/* The next message, waited for; to be freed. */
WorkerUp *take(struct outbox *o);
WorkerUp *take_numbered(struct outbox *o, int64_t seq);
/* Numbers from .. to, each the step that put_steps gave it. */
void expect(struct outbox *o, int64_t from, int64_t to);
/* Numbers from .. until a note that says `part`; returns its number. */
int64_t take_to_note(struct outbox *o, int64_t from, const char *part);

/* The records on disk follow each other; returns the last number, 0 = no journal. */
int64_t last_on_disk(const struct bench *b, int64_t *first, size_t *num_segments);
void wait_for_disk(const struct bench *b, int64_t last);

/* No file of this process may grow beyond it, as if the disk were full; until bench_tear_down. */
void limit_files(rlim_t bytes);

#endif
