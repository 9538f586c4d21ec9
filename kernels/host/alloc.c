#include "kernels/host/alloc.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/error.h"

#define HUGE_PAGE ((size_t)2 << 20)
#define SMALL_PAGE ((size_t)4096)
#define ALIGNMENT ((size_t)64)

/* One allocation; the list is short (tens), so a search by address is cheap. */
struct chunk {
    void *mem;     /* what the user holds */
    void *base;    /* what the system gave */
    size_t mapped; /* 0 = from malloc */
    size_t bytes;  /* asked for */
};

struct host_heap {
    struct chunk *chunks;
    size_t num_chunks;
    size_t max_chunks;
    size_t num_mapped_ever;
    size_t allocated, peak; /* bytes asked for */
};

struct host_heap *host_heap_new(void)
{
    return calloc(1, sizeof(struct host_heap));
}

static void chunk_release(struct chunk *c)
{
    if (c->mapped) {
        munmap(c->base, c->mapped);
    } else {
        free(c->base);
    }
}

void host_heap_free(struct host_heap *h)
{
    if (!h) {
        return;
    }
    for (size_t i = 0; i < h->num_chunks; i++) {
        chunk_release(&h->chunks[i]);
    }
    free(h->chunks);
    free(h);
}

/* The kernel promises more than it has and kills later; ask first. */
static size_t available_bytes(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f) {
        return SIZE_MAX;
    }
    char line[128];
    unsigned long long kib = 0;
    bool found = false;
    while (!found && fgets(line, sizeof line, f)) {
        found = sscanf(line, "MemAvailable: %llu kB", &kib) == 1;
    }
    fclose(f);
    return found ? (size_t)kib * 1024 : SIZE_MAX;
}

static void touch(void *mem, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    if (madvise(mem, bytes, MADV_POPULATE_WRITE) == 0) {
        return;
    }
#endif
    for (size_t i = 0; i < bytes; i += SMALL_PAGE) {
        ((volatile char *)mem)[i] = 0;
    }
}

/* Large memory starts a few cache lines behind a page's start, each time some more: arrays that
 * are walked together would else fall into the same cache sets. */
static int map_large(struct host_heap *h, struct chunk *c, size_t bytes)
{
    size_t colour = h->num_mapped_ever % 16 * 4 * ALIGNMENT;
    size_t mapped = bytes + colour + HUGE_PAGE;
    if (mapped > available_bytes()) {
        return -1;
    }
    void *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return -1;
    }
    uintptr_t start = ((uintptr_t)base + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    size_t used = (bytes + colour + SMALL_PAGE - 1) / SMALL_PAGE * SMALL_PAGE;
    madvise((void *)start, used, MADV_HUGEPAGE);
    touch((void *)start, used);
    h->num_mapped_ever++;
    *c = (struct chunk){.mem = (char *)start + colour, .base = base, .mapped = mapped};
    return 0;
}

static int take_small(struct chunk *c, size_t bytes)
{
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *mem = aligned_alloc(ALIGNMENT, rounded ? rounded : ALIGNMENT);
    if (!mem) {
        return -1;
    }
    memset(mem, 0, rounded);
    *c = (struct chunk){.mem = mem, .base = mem};
    return 0;
}

void *host_alloc(struct host_heap *h, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    if (h->num_chunks == h->max_chunks) {
        size_t max = h->max_chunks ? 2 * h->max_chunks : 32;
        struct chunk *grown = realloc(h->chunks, max * sizeof *grown);
        if (!grown) {
            return NULL;
        }
        h->chunks = grown;
        h->max_chunks = max;
    }
    struct chunk *c = &h->chunks[h->num_chunks];
    if ((bytes >= HUGE_PAGE ? map_large(h, c, bytes) : take_small(c, bytes)) != 0) {
        return NULL;
    }
    h->num_chunks++;
    c->bytes = bytes;
    h->allocated += bytes;
    h->peak = h->allocated > h->peak ? h->allocated : h->peak;
    return c->mem;
}

void host_release(struct host_heap *h, void *mem)
{
    if (!mem) {
        return;
    }
    size_t i = 0;
    while (i < h->num_chunks && h->chunks[i].mem != mem) {
        i++;
    }
    ASSERT(i < h->num_chunks); /* memory of this device */
    h->allocated -= h->chunks[i].bytes;
    chunk_release(&h->chunks[i]);
    h->chunks[i] = h->chunks[--h->num_chunks];
}

size_t host_heap_peak(const struct host_heap *h)
{
    return h->peak;
}
