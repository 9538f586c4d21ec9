/* runtime/comm/comm_host: a call that ends as somebody aborts, or as a deadline passes, ends alike
 * for all its members: what they decide by it, they decide alike. Both moments are met exactly, by
 * what the barrier calls (linked with --wrap). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/comm/comm_host_segment.h"
#include "tests/deadline.h"
#include "tests/parallel/comm_gang.h"

static struct {
    _Atomic bool looked;  /* rank 0 has seen no abort, and is about to come */
    _Atomic bool late;    /* rank 0's deadline has passed */
    _Atomic bool left[2]; /* the rank has heard how the call ended */
} seen;

/* What this thread does between its look for an abort and its coming; before it aborts itself. */
static _Thread_local void (*after_look)(void);
static _Thread_local void (*before_abort)(void);
static _Thread_local struct gang_rank *self;

bool __real_segment_is_aborted(const struct segment_header *h);
bool __wrap_segment_is_aborted(const struct segment_header *h);
void __real_segment_abort(struct segment_header *h, enum error_code code, int32_t culprit,
                          const char *reason);
void __wrap_segment_abort(struct segment_header *h, enum error_code code, int32_t culprit,
                          const char *reason);

static void run_once(void (**hook)(void))
{
    void (*fn)(void) = *hook;
    *hook = NULL;
    if (fn) {
        fn();
    }
}

bool __wrap_segment_is_aborted(const struct segment_header *h)
{
    bool is_aborted = __real_segment_is_aborted(h);
    run_once(&after_look);
    return is_aborted;
}

void __wrap_segment_abort(struct segment_header *h, enum error_code code, int32_t culprit,
                          const char *reason)
{
    run_once(&before_abort);
    __real_segment_abort(h, code, culprit, reason);
}

/* On a rank's thread, where nothing of cmocka may run. */
static void wait_for(_Atomic bool *flag)
{
    int64_t until = clock_mono_ms() + DEADLINE_S * 1000;
    while (!atomic_load(flag) && clock_mono_ms() < until) {
        clock_sleep_ms(1);
    }
    ASSERT(atomic_load(flag));
}

static int sum(struct gang_rank *r, struct error *err)
{
    double word = 1.0;
    int rc = r->all->ops->all_reduce(r->all, NULL, &word, 1, DTYPE_F64, COMM_SUM, err);
    atomic_store(&seen.left[r->rank], true);
    return rc;
}

/* ---- an abort ---------------------------------------------------------------------------------
 */

static void say_looked(void)
{
    atomic_store(&seen.looked, true);
}

static void abort_and_let_it_be_heard(void)
{
    wait_for(&seen.looked);
    comm_host_abort(self->world, "rank 1 is told to stop");
    wait_for(&seen.left[0]);
}

static void meet_an_abort(struct gang_rank *r)
{
    struct error err = {0};
    self = r;
    after_look = r->rank == 0 ? say_looked : abort_and_let_it_be_heard;
    GANG_CHECK(r, sum(r, &err) == -1);
    GANG_CHECK(r, strstr(err.text, "rank 1 is told to stop"));
}

/* Rank 1 looks, sees no abort, aborts itself; rank 0 hears that and leaves; then rank 1 comes, as
 * the last. It hears the same. */
static void the_last_one_hears_of_an_abort_that_others_heard_of(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    gang_run_threads(2, 0, 1000 * DEADLINE_S, meet_an_abort, NULL);
}

/* ---- a deadline -------------------------------------------------------------------------------
 */

static void let_the_last_one_come(void)
{
    atomic_store(&seen.late, true);
    wait_for(&seen.left[1]);
}

static void come_late(struct gang_rank *r)
{
    struct error err = {0};
    self = r;
    before_abort = r->rank == 0 ? let_the_last_one_come : NULL;
    if (r->rank == 1) {
        wait_for(&seen.late);
    }
    GANG_CHECK(r, sum(r, &err) == 0);
    GANG_CHECK(r, r->all->ops->barrier(r->all, NULL, &err) == -1);
    GANG_CHECK(r, strstr(err.text, "rank 1 did not come to all-reduce of 1 fp64"));
}

/* Rank 0's deadline passes; before it can say so rank 1 comes and finds all there. It was late, so
 * the gang ends, but not in a call that one of them takes for done. */
static void a_call_that_was_done_at_the_deadline_is_done_for_all(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    gang_run_threads_until(2, (int64_t[]){300, 1000 * DEADLINE_S}, come_late, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_one_hears_of_an_abort_that_others_heard_of),
        cmocka_unit_test(a_call_that_was_done_at_the_deadline_is_done_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
