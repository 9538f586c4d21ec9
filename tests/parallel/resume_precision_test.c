/* A run that is taken up in another precision (ranks are threads): allowed where no number of the
 * checkpoint is lost, refused in words where some would be rounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "gang.h"

#define STEPS 6
#define STOP 4 /* the checkpoint's step */

/* What is written is read again by this process: nothing to wait for. */
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    (void)fd;
    return 0;
}

struct run {
    struct gang gang;
    Plan *plan;
    char *dir;
};

static struct gang_spec spec_of(const char *precision, int64_t data, int64_t zero_stage)
{
    return (struct gang_spec){
        .golden = &golden_tiny,
        .data = data,
        .zero_stage = zero_stage,
        .steps = STEPS,
        .precision = precision,
        .checkpoint = "interval: 4, async: true, export_at_end: true",
    };
}

static void start(struct run *r, const struct gang_spec *spec, const char *resume_dir)
{
    r->plan = gang_plan(spec);
    r->dir = gang_make_dir();
    r->gang = (struct gang){.plan = r->plan, .job_dir = r->dir, .resume_dir = resume_dir};
    gang_run(&r->gang);
}

static void end(struct run *r)
{
    plan__free_unpacked(r->plan, NULL);
    gang_remove_dir(r->dir);
}

static void all_well(const struct run *r)
{
    for (int i = 0; i < (int)r->plan->mesh->num_ranks; i++) {
        if (r->gang.ranks[i].rc != 0) {
            fail_msg("rank %d: %s", i, r->gang.ranks[i].err.text);
        }
    }
}

/* The folder of the checkpoint of step STOP. */
static void stopped_at(const struct run *r, char *out, size_t size)
{
    for (int i = 0; i < r->gang.num_checkpoints; i++) {
        if (r->gang.checkpoint_steps[i] == STOP) {
            assert_true(fs_join(out, size, r->dir, r->gang.checkpoints[i]));
            return;
        }
    }
    fail_msg("there is no checkpoint of step %d", STOP);
}

static double loss_of(const struct run *r, int64_t step)
{
    for (int64_t i = 0; i < r->gang.num_steps; i++) {
        if (r->gang.steps[i].step == step) {
            return r->gang.steps[i].loss;
        }
    }
    fail_msg("step %lld is not reported", (long long)step);
    return 0;
}

static struct run base, next;

/* From first's checkpoint in second's precision; the losses of the last step of both. */
static void take_up(const char *first, const char *second, double bound)
{
    char dir[600];
    struct gang_spec from = spec_of(first, 2, 1), to = spec_of(second, 2, 3);
    start(&base, &from, NULL);
    all_well(&base);
    stopped_at(&base, dir, sizeof dir);
    start(&next, &to, dir);
    all_well(&next);
    assert_int_equal(next.gang.first_step, STOP + 1);
    double want = loss_of(&base, STEPS), got = loss_of(&next, STEPS);
    if (fabs(got - want) > bound * fabs(want)) {
        fail_msg("%s, then %s: loss %.9g, not %.9g", first, second, got, want);
    }
    end(&base);
    end(&next);
}

/* Masters and moments are fp32 in both: a bf16 run goes on in fp32, an fp32 run in bf16, each near
 * the run that it left; a bf16 run in bf16 under another layout goes on as it was. */
static void bf16_and_fp32_take_each_other_up(void **state)
{
    (void)state;
    take_up("bf16", "bf16", 2e-3);
    take_up("bf16", "fp32", 2e-2);
    take_up("fp32", "bf16", 2e-2);
}

/* More bits than the run had cost nothing; fewer would be lost in silence. */
static void fp64_takes_up_all_and_gives_to_none(void **state)
{
    (void)state;
    static const char *const narrower[] = {"fp32", "bf16"};
    char dir[600], words[64];
    take_up("fp32", "fp64", 1e-4);
    struct gang_spec from = spec_of("fp64", 1, 0);
    start(&base, &from, NULL);
    all_well(&base);
    stopped_at(&base, dir, sizeof dir);
    for (size_t i = 0; i < 2; i++) {
        struct gang_spec to = spec_of(narrower[i], 2, 1);
        start(&next, &to, dir);
        snprintf(words, sizeof words, "is of an fp64 run, whose numbers this one (%s)",
                 narrower[i]);
        assert_int_equal(next.gang.ranks[0].rc, -1);
        assert_non_null(strstr(next.gang.ranks[0].err.text, words));
        assert_int_equal(next.gang.num_steps, 0);
        end(&next);
    }
    end(&base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_and_fp32_take_each_other_up),
        cmocka_unit_test(fp64_takes_up_all_and_gives_to_none),
    };
    gang_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
