/* Memory with one lifetime: many allocations, one release. Zeroed, 16-byte aligned. Not for
 * several threads at once. An arena has a cap, so that a request can't eat the machine. */
#ifndef TANDEM_BASE_ARENA_H
#define TANDEM_BASE_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks; /* owned */
    size_t used_bytes;
    size_t max_bytes; /* 0 = no cap */
};

/* NULL when the cap would be passed; the arena stays as it was. */
void *arena_alloc(struct arena *a, size_t bytes);
/* A copy of the string; NULL as above. */
char *arena_strdup(struct arena *a, const char *text);
void arena_free(struct arena *a);

#endif
