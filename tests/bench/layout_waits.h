/* Where a rank's computation is held up: the linker puts these functions before the waits of
 * streams and before collectives (--wrap), in this benchmark alone. */
#ifndef TANDEM_TESTS_BENCH_LAYOUT_WAITS_H
#define TANDEM_TESTS_BENCH_LAYOUT_WAITS_H

#include <stdbool.h>

/* Shares of the computing threads' time since the last reset. */
struct layout_waits {
    double wait_share;   /* waits for other streams */
    double inline_share; /* collectives that run on the computing thread itself */
};

void layout_waits_reset(void);
struct layout_waits layout_waits_take(void);
/* From now on a computing thread waits for each collective that it hands to another stream. */
void layout_waits_serial(bool on);

#endif
