#include "base/arena.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

struct arena_block {
    struct arena_block *next; /* owned */
    size_t used;
    size_t size;
    alignas(16) unsigned char data[];
};

#define ARENA_BLOCK_BYTES ((size_t)16 << 10)

void *arena_alloc(struct arena *a, size_t bytes)
{
    if (bytes > (size_t)1 << 40) {
        return NULL;
    }
    bytes = (bytes + 15) & ~(size_t)15;
    if (a->max_bytes && (bytes > a->max_bytes || a->used_bytes > a->max_bytes - bytes)) {
        return NULL;
    }
    struct arena_block *b = a->blocks;
    if (!b || b->size - b->used < bytes) {
        size_t size = bytes > ARENA_BLOCK_BYTES ? bytes : ARENA_BLOCK_BYTES;
        b = calloc(1, sizeof *b + size);
        if (!b) {
            return NULL;
        }
        b->size = size;
        b->next = a->blocks;
        a->blocks = b;
    }
    void *p = b->data + b->used;
    b->used += bytes;
    a->used_bytes += bytes;
    return p;
}

char *arena_strdup(struct arena *a, const char *text)
{
    size_t n = strlen(text) + 1;
    char *p = arena_alloc(a, n);
    if (p) {
        memcpy(p, text, n);
    }
    return p;
}

void arena_free(struct arena *a)
{
    while (a->blocks) {
        struct arena_block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
    a->used_bytes = 0;
}
