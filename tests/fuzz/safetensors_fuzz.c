/* Any bytes as a safetensors file: refused in words, or every tensor can be read to its last byte
 * and the header written again says the same. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/ckpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned seen; /* so that the bytes are really read */

static void read_all(const struct st_file *f)
{
    const struct st_header *h = st_file_header(f);
    for (int32_t i = 0; i < h->num_tensors; i++) {
        const struct st_tensor *t = &h->tensors[i];
        ASSERT(st_header_find(h, t->name) == t);
        uint64_t bytes = t->end - t->begin;
        const unsigned char *p = st_file_data(f, t);
        for (uint64_t k = 0; k < bytes; k++) {
            seen = seen + p[k];
        }
        int64_t count = (int64_t)(bytes / st_dtype_size(t->dtype));
        double *v = malloc(((size_t)count + 1) * sizeof *v);
        ASSERT(v);
        struct error err = {0};
        if (st_read_elements(f, t, 0, count, v, sizeof *v, &err) != 0) {
            ASSERT(err.code == ERR_UNIMPLEMENTED);
        }
        ASSERT(st_read_elements(f, t, 1, count, v, sizeof *v, &err) != 0);
        free(v);
    }
}

static int by_begin(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    return x->begin != y->begin ? (x->begin < y->begin ? -1 : 1)
                                : (x->end < y->end ? -1 : x->end > y->end);
}

static void write_again(const struct st_header *h, uint64_t data_bytes)
{
    struct st_tensor *t = calloc((size_t)h->num_tensors + 1, sizeof *t);
    ASSERT(t);
    for (int32_t i = 0; i < h->num_tensors; i++) {
        t[i] = h->tensors[i];
    }
    qsort(t, (size_t)h->num_tensors, sizeof *t, by_begin);
    char *header;
    size_t len;
    uint64_t bytes;
    struct st_header again;
    ASSERT(st_layout(t, h->num_tensors, (const char *const *)h->metadata, &header, &len, &bytes,
                     NULL) == 0);
    ASSERT(bytes == data_bytes);
    ASSERT(st_header_parse("again", header, len, len + bytes, &again, NULL) == 0);
    ASSERT(again.num_tensors == h->num_tensors);
    for (int32_t i = 0; i < h->num_tensors; i++) {
        const struct st_tensor *x = &again.tensors[i], *y = &h->tensors[i];
        ASSERT(strcmp(x->name, y->name) == 0 && x->begin == y->begin && x->end == y->end);
        ASSERT(x->dtype == y->dtype && x->num_dims == y->num_dims);
    }
    st_header_free(&again);
    free(header);
    free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static char path[64];
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        ASSERT(fd >= 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    ASSERT(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    ASSERT(fs_write_all(fd, data, size) == 0);
    struct st_file *f;
    struct error err = {0};
    if (st_open(&f, NULL, path, &err) != 0) {
        ASSERT(err.code == ERR_INVALID_ARGUMENT && err.text[0]);
        return 0;
    }
    read_all(f);
    write_again(st_file_header(f), size - st_file_header(f)->data_offset);
    st_close(f);
    return 0;
}
