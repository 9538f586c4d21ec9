/* The two clocks. Durations and deadlines use the monotonic one; what people read, the other. */
#ifndef TANDEM_BASE_CLOCK_H
#define TANDEM_BASE_CLOCK_H

#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
int64_t clock_mono_ns(void);
/* Milliseconds of CLOCK_MONOTONIC. */
int64_t clock_mono_ms(void);
/* Microseconds since 1970. */
int64_t clock_wall_us(void);
/* Sleeps, also through signals. */
void clock_sleep_ms(int64_t ms);

#endif
