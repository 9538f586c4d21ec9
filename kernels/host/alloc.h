/* Memory of a host device: zeroed, huge pages where it is large, touched when it is allocated, so
 * that no step pays for a page's first touch. */
#ifndef TANDEM_KERNELS_HOST_ALLOC_H
#define TANDEM_KERNELS_HOST_ALLOC_H

#include <stddef.h>

struct host_heap;

/* NULL = no memory. */
struct host_heap *host_heap_new(void);
/* Also what is still allocated. */
void host_heap_free(struct host_heap *h);
/* 64-byte aligned. NULL = no memory, or more than the host has available. */
void *host_alloc(struct host_heap *h, size_t bytes);
void host_release(struct host_heap *h, void *mem);
/* The largest sum of bytes asked for that was allocated at once. */
size_t host_heap_peak(const struct host_heap *h);

#endif
