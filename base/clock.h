/* The two clocks. Durations and deadlines use the monotonic one; what people read, the other. What
 * something costs is neither's to say: while it is done this process may stand still. */
#ifndef TANDEM_BASE_CLOCK_H
#define TANDEM_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
int64_t clock_mono_ns(void);
/* Milliseconds of CLOCK_MONOTONIC. */
int64_t clock_mono_ms(void);
/* Milliseconds that this thread has had of the processor. */
int64_t clock_thread_ms(void);
/* Microseconds since 1970. */
int64_t clock_wall_us(void);
/* Sleeps, also through signals. */
void clock_sleep_ms(int64_t ms);

#endif
