/* What ThreadSanitizer is told: a simulated thread and a stream are threads of their own to it, and
 * these are the only edges between them. In other builds all of it is nothing.
 *
 * Only files that are not instrumented themselves use this: what the simulator does for itself is
 * no part of the program under test. */
#ifndef TANDEM_KERNELS_CUSIM_TSAN_H
#define TANDEM_KERNELS_CUSIM_TSAN_H

#include <stddef.h>

namespace cusim
{

#ifdef CUSIM_TSAN

extern "C" {
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
}
#define TSAN_ON 1

inline void *tsan_fiber_new()
{
    return __tsan_create_fiber(0);
}
inline void tsan_fiber_free(void *fiber)
{
    __tsan_destroy_fiber(fiber);
}
inline void *tsan_fiber_now()
{
    return __tsan_get_current_fiber();
}
/* 1: the switch itself orders nothing. */
inline void tsan_switch(void *fiber)
{
    __tsan_switch_to_fiber(fiber, 1);
}
inline void tsan_acquire(void *token)
{
    if (token) {
        __tsan_acquire(token);
    }
}
inline void tsan_release(void *token)
{
    if (token) {
        __tsan_release(token);
    }
}
/* A token that hasn't been used for long. What still hangs on the old use can only hide a race, not
 * make one up. */
inline void *tsan_token()
{
    static char ring[8192][8];
    static size_t next;
    next = (next + 1) % 8192;
    return ring[next];
}

#else

#define TSAN_ON 0
inline void *tsan_fiber_new()
{
    return nullptr;
}
inline void tsan_fiber_free(void *)
{
}
inline void *tsan_fiber_now()
{
    return nullptr;
}
inline void tsan_switch(void *)
{
}
inline void tsan_acquire(void *)
{
}
inline void tsan_release(void *)
{
}
inline void *tsan_token()
{
    return nullptr;
}

#endif

} // namespace cusim

#endif
