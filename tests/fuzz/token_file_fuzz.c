/* Any bytes as a token file, or one of packed rows, under any options: refused in words, or every
 * micro-batch of a few steps can be read, and its ids lie in the vocabulary. The first 8 bytes are
 * the options. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/data/loader.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Lists of a micro-batch. */
enum { IDS, TARGETS, POSITIONS, SEGMENTS, NUM_LISTS };

static void check_batch(const struct loader *l, const struct loader_options *o,
                        int32_t *const lists[NUM_LISTS], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int32_t id = lists[IDS][i];
        bool first = i % (size_t)o->seq_len == 0;
        ASSERT(id >= 0 && (o->vocab_size == 0 || id < o->vocab_size));
        if (!loader_is_packed(l)) {
            ASSERT(first || id == lists[TARGETS][i - 1]);
            continue;
        }
        ASSERT(lists[TARGETS][i] >= -100);
        ASSERT(lists[POSITIONS][i] >= 0 && lists[POSITIONS][i] < o->seq_len);
        ASSERT(first ? lists[SEGMENTS][i] == 0
                     : (uint32_t)(lists[SEGMENTS][i] - lists[SEGMENTS][i - 1]) <= 1);
    }
}

static void read_steps(struct loader *l, const struct loader_options *o)
{
    size_t n = (size_t)(o->micro_batch_size * o->seq_len);
    int32_t *lists[NUM_LISTS];
    for (int i = 0; i < NUM_LISTS; i++) {
        lists[i] = malloc(n * sizeof *lists[i]);
        ASSERT(lists[i]);
    }
    int64_t micro_batches = o->global_batch_size / o->data_size / o->micro_batch_size;
    const struct host_batch batch = {lists[IDS], lists[TARGETS], lists[POSITIONS], lists[SEGMENTS]};
    ASSERT(loader_num_samples(l) >= 1);
    for (int64_t step = 1; step <= 3; step++) {
        struct loader_counts counts;
        for (int64_t m = 0; m < micro_batches; m++) {
            struct error err = {0};
            if (loader_read(l, step, m, &batch, &err) == 0) {
                check_batch(l, o, lists, n);
            } else {
                ASSERT(err.code == (loader_is_packed(l) ? ERR_INVALID_ARGUMENT : ERR_OUT_OF_RANGE));
                ASSERT(err.text[0]);
            }
        }
        int rc = loader_count_own_targets(l, step, &counts, NULL);
        ASSERT(loader_is_packed(l) || (rc == 0 && counts.targets == micro_batches * (int64_t)n));
        ASSERT(rc != 0 || (counts.targets <= counts.tokens && counts.tokens <= counts.attended));
    }
    for (int i = 0; i < NUM_LISTS; i++) {
        free(lists[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const formats[] = {"text", "u16", "u32", "tokenized-jsonl"};
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        ASSERT(fd >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (size < 8) {
        return 0;
    }
    struct loader_options o = {.path = path,
                               .format = formats[data[0] % 4],
                               .window = data[1] & 1 ? "T+1" : "T",
                               .tokenizer = "bytes",
                               .order = data[1] & 2 ? "shuffled" : "sequential",
                               .seed = data[2],
                               .seq_len = data[3],
                               .global_batch_size = data[4] % 32,
                               .vocab_size = data[5] * 257,
                               .data_size = data[6] % 8,
                               .data_rank = data[6] / 32,
                               .micro_batch_size = data[7] % 8};
    ASSERT(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    ASSERT(fs_write_all(fd, data + 8, size - 8) == 0);
    struct loader *l;
    struct error err = {0};
    if (loader_open(&l, &o, &err) != 0) {
        ASSERT(err.code == ERR_INVALID_ARGUMENT && err.text[0]);
        return 0;
    }
    read_steps(l, &o);
    loader_close(l);
    return 0;
}
