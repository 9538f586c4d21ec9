/* The learning rate of a step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>

#include <cmocka.h>

#include "../parallel/golden.h"
#include "runtime/optim/lr.h"

static OptimizerSpec optimizer;
static LrScheduleSpec schedule;
static TrainingSpec training;

static int setup(void **state)
{
    (void)state;
    optimizer = (OptimizerSpec)OPTIMIZER_SPEC__INIT;
    schedule = (LrScheduleSpec)LR_SCHEDULE_SPEC__INIT;
    training = (TrainingSpec)TRAINING_SPEC__INIT;
    training.optimizer = &optimizer;
    training.lr_schedule = &schedule;
    optimizer.lr = 0.002;
    return 0;
}

static void check_lr(int64_t total_steps, int64_t n, double want)
{
    double got = lr_at(&training, total_steps, n);
    if (!(fabs(got - want) <= 1e-15 * want))
        fail_msg("step %lld: %.17g, not %.17g", (long long)n, got, want);
}

static void cosine_follows_the_reference_list(void **state)
{
    (void)state;
    double want[GOLDEN_STEPS];
    golden_curve(&golden_tiny, "lr", want);
    schedule.warmup_steps = 5;
    schedule.decay_steps = 20;
    for (int n = 1; n <= GOLDEN_STEPS; n++)
        check_lr(1000, n, want[n - 1]);
    /* Behind the end the floor holds. */
    check_lr(1000, 21, 0.0002);
    check_lr(1000, 1000, 0.0002);
}

/* decay_steps 0 = the last step. */
static void decay_ends_with_the_job_by_default(void **state)
{
    (void)state;
    schedule.warmup_steps = 0;
    check_lr(100, 100, 0.0002);
    check_lr(100, 50, 0.002 * (0.1 + 0.9 * 0.5));
}

static void linear_falls_evenly_to_the_floor(void **state)
{
    (void)state;
    schedule.decay = (char *)"linear";
    schedule.warmup_steps = 10;
    schedule.decay_steps = 110;
    schedule.min_lr_ratio = 0.2;
    check_lr(200, 5, 0.001);
    check_lr(200, 10, 0.002);
    check_lr(200, 60, 0.002 * (0.2 + 0.8 * 0.5));
    check_lr(200, 110, 0.0004);
    check_lr(200, 150, 0.0004);
}

static void constant_stays(void **state)
{
    (void)state;
    schedule.decay = (char *)"constant";
    schedule.warmup_steps = 4;
    check_lr(100, 1, 0.0005);
    check_lr(100, 4, 0.002);
    check_lr(100, 100, 0.002);
}

/* Constant, then linear to the floor over the last decay_steps; by default a tenth of the job. */
static void wsd_falls_over_the_last_steps(void **state)
{
    (void)state;
    schedule.decay = (char *)"wsd";
    schedule.warmup_steps = 0;
    schedule.decay_steps = 20;
    check_lr(100, 1, 0.002);
    check_lr(100, 80, 0.002);
    check_lr(100, 90, 0.002 * (0.1 + 0.9 * 0.5));
    check_lr(100, 100, 0.0002);
    schedule.decay_steps = 0;
    check_lr(100, 90, 0.002);
    check_lr(100, 95, 0.002 * (0.1 + 0.9 * 0.5));
    check_lr(100, 100, 0.0002);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(cosine_follows_the_reference_list, setup),
        cmocka_unit_test_setup(decay_ends_with_the_job_by_default, setup),
        cmocka_unit_test_setup(linear_falls_evenly_to_the_floor, setup),
        cmocka_unit_test_setup(constant_stays, setup),
        cmocka_unit_test_setup(wsd_falls_over_the_last_steps, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
