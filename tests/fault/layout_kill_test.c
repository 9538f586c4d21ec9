/* Ranks of drawn layouts, killed at drawn moments: nothing hangs, nothing is left, and the run goes
 * on from its newest checkpoint to the bits of one that nobody disturbed.
 *
 * KILL_SEED=N draws others, KILL_CASES=N so many; TANDEM_FULL=1: 300. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/rng.h"
#include "runtime/node/proctree.h"
#include "tests/effort.h"
#include "tests/fault/crew.h"

#define STEPS 6
#define STOPPED_MS 200
/* Far above what a run takes, far below the deadline of collectives. */
#define LIMIT_MS 120000

static const struct crew_layout layouts[] = {
    {.data = 1, .tensor = 1, .micro = 4},
    {.data = 2, .tensor = 1, .micro = 3},
    {.data = 3, .tensor = 1, .zero_stage = 1, .micro = 2},
    {.data = 1, .tensor = 2, .micro = 6},
    {.data = 1, .tensor = 8, .micro = 12},
    {.data = 1, .tensor = 4, .sequence = true, .gpt2 = true, .micro = 6},
    {.data = 2, .tensor = 2, .sequence = true, .zero_stage = 1, .micro = 3},
    {.data = 2, .tensor = 1, .zero_stage = 2, .micro = 2},
    {.data = 4, .tensor = 1, .zero_stage = 2, .shard_size = 2, .micro = 1},
    {.data = 3, .tensor = 1, .zero_stage = 3, .micro = 2},
    {.data = 2, .tensor = 4, .zero_stage = 3, .micro = 6},
    {.data = 4, .tensor = 2, .zero_stage = 3, .shard_size = 2, .sequence = true, .micro = 3},
    {.data = 2, .tensor = 2, .zero_stage = 3, .gpt2 = true, .micro = 6},
    {.data = 6, .tensor = 1, .zero_stage = 1, .shard_size = 3, .micro = 2},
};
#define NUM_LAYOUTS (sizeof(layouts) / sizeof(*layouts))

/* How each of them runs undisturbed; made when it is wanted. */
static struct {
    bool is_made;
    double loss[CREW_STEPS + 1];
    int64_t took_ms;
} undisturbed[NUM_LAYOUTS];

struct draw {
    uint64_t seed, next;
};

static uint64_t below(struct draw *d, uint64_t n)
{
    return rng_u64(d->seed, rng_stream("kills"), d->next++) % n;
}

static struct crew *start(const Plan *plan, const char *dir, int32_t attempt)
{
    struct crew_options options = {
        .plan = plan,
        .program = TANDEM_BIN_DIR "/tandem-rank",
        .job_dir = dir,
        .attempt = attempt,
        .stopped_ms = STOPPED_MS,
        .abort_grace_ms = 400,
    };
    return crew_start(&options);
}

static void run_undisturbed(size_t which, const Plan *plan)
{
    char dir[] = "/tmp/tandem-kill-XXXXXX";
    struct crew_end end;
    if (undisturbed[which].is_made)
        return;
    assert_non_null(mkdtemp(dir));
    crew_end(start(plan, dir, 1), LIMIT_MS, &end);
    if (!end.finished || end.num_steps != STEPS)
        fail_msg("%s", end.message);
    memcpy(undisturbed[which].loss, end.loss, sizeof(end.loss));
    undisturbed[which].took_ms = end.took_ms;
    undisturbed[which].is_made = true;
    fs_remove_tree(dir, NULL);
}

/* What was heard of steps, before and after kills, is what an undisturbed run says of them. */
static bool same_steps(const struct crew_end *end, const double *want)
{
    for (int64_t i = 1; i <= STEPS; i++)
        if (end->loss[i] != 0.0 && end->loss[i] != want[i])
            return false;
    return true;
}

static void kill_once(uint64_t seed)
{
    struct draw d = {.seed = seed};
    char dir[] = "/tmp/tandem-kill-XXXXXX", name[96];
    size_t which = below(&d, NUM_LAYOUTS);
    Plan *plan = crew_plan(&layouts[which], STEPS, 1 + (int64_t)below(&d, 3));
    int32_t num_ranks = (int32_t)plan->mesh->num_ranks, attempt = 0;
    struct crew_end end = {0};
    run_undisturbed(which, plan);
    assert_non_null(mkdtemp(dir));
    int num_kills = 1 + (int)below(&d, 2);
    crew_layout_name(&layouts[which], name);
    /* The last attempt is let be. */
    while (!end.finished) {
        struct crew *c = start(plan, dir, ++attempt);
        int32_t victim = (int32_t)below(&d, (uint64_t)num_ranks);
        int sig = below(&d, 5) == 0 ? SIGSTOP : SIGKILL;
        if (attempt <= num_kills) {
            crew_watch(c, (int64_t)below(&d, (uint64_t)undisturbed[which].took_ms + 1));
            int pid = crew_pid(c, victim);
            if (pid > 0)
                kill(pid, sig);
        }
        crew_end(c, LIMIT_MS, &end);
        if (!same_steps(&end, undisturbed[which].loss))
            fail_msg("KILL_SEED=%llu: %s: other losses", (unsigned long long)seed, name);
        if (attempt > num_kills && !end.finished)
            fail_msg("KILL_SEED=%llu: %s: %s", (unsigned long long)seed, name, end.message);
        if (!end.finished && end.first_failed != victim)
            fail_msg("KILL_SEED=%llu: %s: rank %d was hit, rank %d blamed: %s",
                     (unsigned long long)seed, name, victim, end.first_failed, end.message);
    }
    plan__free_unpacked(plan, NULL);
    fs_remove_tree(dir, NULL);
}

static void kills_at_any_moment_hang_nothing_and_lose_no_step(void **state)
{
    (void)state;
    const char *first = getenv("KILL_SEED"), *cases = getenv("KILL_CASES");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1;
    int num = cases != NULL ? atoi(cases) : effort(300, 20, 4);
    print_message("KILL_SEED=%llu KILL_CASES=%d\n", (unsigned long long)seed, num);
    for (int i = 0; i < num; i++)
        kill_once(seed + (uint64_t)i);
}

int main(void)
{
    setenv("TANDEM_LOG", "error", 0);
    log_init("crew");
    proctree_adopt_orphans(NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kills_at_any_moment_hang_nothing_and_lose_no_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
