/* Ranks that are threads of one process, and what the process has once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <malloc.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "gang.h"

/* Long enough for the other rank to come, too, wherever it may. */
#define STAY_MS 300

static atomic_int num_inside, num_calls;

/* libc's, for this program: stays until the other rank is here as well, and it must not be. */
int malloc_trim(size_t pad)
{
    (void)pad;
    atomic_fetch_add(&num_calls, 1);
    ASSERT(atomic_fetch_add(&num_inside, 1) == 0);
    for (int64_t until = clock_mono_ms() + STAY_MS; clock_mono_ms() < until; clock_sleep_ms(1))
        ASSERT(atomic_load(&num_inside) == 1);
    atomic_fetch_sub(&num_inside, 1);
    return 0;
}

/* Where a sanitizer allocates, the first malloc_trim sets libc's allocator up: a second one beside
 * it would meet it half made. */
static void ranks_that_share_a_process_trim_its_heap_one_at_a_time(void **state)
{
    (void)state;
    struct gang_spec spec = {.golden = &golden_tiny, .data = 2, .steps = 1};
    struct gang g = {.plan = gang_plan(&spec)};
    gang_run_well(&g);
    assert_int_equal(atomic_load(&num_calls), 2);
    plan__free_unpacked((Plan *)g.plan, NULL);
}

int main(void)
{
    gang_quiet();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_share_a_process_trim_its_heap_one_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
