/* Sources whose innermost loops ThreadSanitizer would slow down tenfold are compiled without it
 * (kernels.cmake sets WATCH_BY_HAND). They tell it of their operands themselves, each once and all
 * of it: a race for any of them is found as before. Elsewhere this is nothing. */
#ifndef TANDEM_KERNELS_HOST_VARIANT_WATCH_H
#define TANDEM_KERNELS_HOST_VARIANT_WATCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef WATCH_BY_HAND
void __tsan_read_range(void *at, unsigned long bytes);
void __tsan_write_range(void *at, unsigned long bytes);
#endif

/* Operands [num, length] of entries of `size` bytes, with rows `distance` entries apart. */
static inline void watch_read(const void *at, int64_t num, int64_t length, int64_t distance,
                              size_t size)
{
#ifdef WATCH_BY_HAND
    for (int64_t i = 0; length > 0 && i < num; i++) {
        const char *row = (const char *)at + (size_t)(i * distance) * size;
        __tsan_read_range((void *)(uintptr_t)row, (size_t)length * size);
    }
#else
    (void)at, (void)num, (void)length, (void)distance, (void)size;
#endif
}

static inline void watch_write(void *at, int64_t num, int64_t length, int64_t distance, size_t size)
{
#ifdef WATCH_BY_HAND
    for (int64_t i = 0; length > 0 && i < num; i++) {
        __tsan_write_range((char *)at + (size_t)(i * distance) * size, (size_t)length * size);
    }
#else
    (void)at, (void)num, (void)length, (void)distance, (void)size;
#endif
}

#endif
