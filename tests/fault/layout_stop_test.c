/* A rank that is stopped, killed or stuck in a collective, in every kind of collective of every
 * kind of layout: the run ends soon, no process is left, and what is said names rank, host,
 * operation and group. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "runtime/node/proctree.h"
#include "tests/effort.h"
#include "tests/fault/crew.h"

/* So long that the others have come to where they wait for who stands still; where one of them
 * stands still for as long itself, more of it (TRIES). */
#define STOPPED_MS effort(600, 600, 2000)
/* Of collectives, where a rank is stuck; under sanitizers all takes longer. */
#define DEADLINE_MS (effort_is_set("TANDEM_SAMPLE") ? 8000 : 2000)
#define TRIES 3
/* Far above what it takes, far below the deadline of tandem-rank. */
#define LIMIT_MS 120000
/* For those that leave by themselves. */
#define LEAVE_MS 15000

/* In which collective: what its text has in it, and which of them. */
struct moment {
    struct crew_layout layout;
    const char *at;
    int count;
};

#define DATA_3                                                                                     \
    {                                                                                              \
        .data = 3, .tensor = 1, .micro = 2                                                         \
    }
#define TENSOR_2                                                                                   \
    {                                                                                              \
        .data = 1, .tensor = 2, .micro = 3                                                         \
    }
#define SEQUENCE                                                                                   \
    {                                                                                              \
        .data = 2, .tensor = 2, .sequence = true, .micro = 3                                       \
    }
#define COPIES                                                                                     \
    {                                                                                              \
        .data = 1, .tensor = 8, .micro = 4                                                         \
    } /* of KV heads: there are 4 */
#define ZERO_1                                                                                     \
    {                                                                                              \
        .data = 3, .tensor = 1, .zero_stage = 1, .micro = 2                                        \
    }
#define ZERO_2                                                                                     \
    {                                                                                              \
        .data = 2, .tensor = 2, .zero_stage = 2, .micro = 3                                        \
    }
#define ZERO_3                                                                                     \
    {                                                                                              \
        .data = 3, .tensor = 1, .zero_stage = 3, .micro = 2                                        \
    }
#define HYBRID                                                                                     \
    {                                                                                              \
        .data = 4, .tensor = 1, .zero_stage = 3, .shard_size = 2, .micro = 1                       \
    }
#define ALL                                                                                        \
    {                                                                                              \
        .data = 4, .tensor = 2, .zero_stage = 3, .shard_size = 2, .sequence = true, .micro = 3     \
    }

static const struct moment moments[] = {
    {DATA_3, "all-reduce of bucket 0 (", 2},
    {DATA_3, "all-reduce of loss (", 3},
    {TENSOR_2, "all-reduce of forward of block 1 (", 3},
    {TENSOR_2, "(max)", 2},
    {SEQUENCE, "reduce-scatter of backward of block 0 (", 5},
    {SEQUENCE, "all-gather of forward of block 1 (", 4},
    {SEQUENCE, "all-reduce of gradients of unit 2 (", 5},
    {COPIES, "all-reduce of gradients of unit 1 (", 2},
    {ZERO_1, "reduce-scatter of bucket 1 (", 2},
    {ZERO_1, "all-gather of weights of bucket 0 (", 3},
    {ZERO_2, "reduce-scatter of bucket 3 (", 4},
    {ZERO_2, "all-gather of weights of bucket 2 (", 2},
    {ZERO_3, "all-gather of weights of bucket 1 (", 7},
    {ZERO_3, "reduce-scatter of bucket 2 (", 3},
    {HYBRID, "all-reduce of bucket 1 (", 2},
    {ALL, "all-gather of weights of bucket 3 (", 3},
};

static void put_number(const char *name, int n)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", n);
    setenv(name, text, 1);
}

/* factor: of what the others wait. */
static void harm(const struct moment *m, int rank, const char *how, int factor,
                 struct crew_end *end)
{
    char dir[] = "/tmp/tandem-stop-XXXXXX", name[96];
    assert_non_null(mkdtemp(dir));
    Plan *plan = crew_plan(&m->layout, 40, 2);
    put_number("STOP_RANK", rank);
    put_number("STOP_COUNT", m->count);
    put_number("STOP_DEADLINE_MS", strcmp(how, "hang") == 0 ? factor * DEADLINE_MS : 0);
    setenv("STOP_AT", m->at, 1);
    setenv("STOP_HOW", how, 1);
    struct crew_options options = {
        .plan = plan,
        .program = TANDEM_BIN_DIR "/rank_stops",
        .job_dir = dir,
        .attempt = 1,
        .stopped_ms = strcmp(how, "stop") == 0 ? factor * STOPPED_MS : 0,
        /* Who stands still never leaves by itself: no need to wait for it. */
        .abort_grace_ms = strcmp(how, "kill") == 0 ? LEAVE_MS : 400,
    };
    crew_end(crew_start(&options), LIMIT_MS, end);
    print_message("%s, rank %d, %s in %s: %lld ms: %s\n", crew_layout_name(&m->layout, name), rank,
                  how, m->at, (long long)end->took_ms, end->message);
    plan__free_unpacked(plan, NULL);
    fs_remove_tree(dir, NULL);
}

/* The rank that comes to harm: another one in each case. */
static int victim(const struct moment *m, size_t i)
{
    return (int)(i * 5 + 1) % (m->layout.data * m->layout.tensor);
}

static void expect(bool holds, const char *what, const struct crew_end *end)
{
    if (holds)
        return;
    for (int32_t i = 0; i < end->num_ranks; i++)
        print_error("rank %d: %s\n", i, end->why[i]);
    fail_msg("%s: %s", what, end->message);
}

static bool names_group(const char *text)
{
    return strstr(text, " group (") != NULL || strstr(text, " over all ranks") != NULL;
}

/* All others have left by themselves, and each says whom they miss. */
static void expect_others(const struct crew_end *end, int rank, const char *word)
{
    for (int32_t i = 0; i < end->num_ranks; i++) {
        expect(i == rank || end->kind[i] == EXIT_STOPPED, "a bystander", end);
        expect(i == rank || strstr(end->why[i], word) != NULL, "what a bystander says", end);
    }
}

static size_t num_moments(void)
{
    size_t all = sizeof(moments) / sizeof(*moments);
    return effort_is_set("TANDEM_SAMPLE") ? all / 4 + 1 : all;
}

/* Where they wait for it, as is said; NULL: it isn't. */
static const char *stop(const struct moment *m, int rank, int factor, struct crew_end *end)
{
    char who[48];
    harm(m, rank, "stop", factor, end);
    snprintf(who, sizeof(who), "rank %d: stood still for ", rank);
    expect(strncmp(end->message, who, strlen(who)) == 0, "who", end);
    expect(strstr(end->message, " s on here after step ") != NULL, "where", end);
    expect_others(end, rank, who);
    return strstr(end->message, "; the others wait for it in ");
}

static void a_stopped_rank_is_named_with_what_the_others_wait_in(void **state)
{
    (void)state;
    size_t num_exact = 0;
    for (size_t i = 0; i < num_moments(); i++) {
        struct crew_end end;
        const struct moment *m = &moments[i];
        const char *what = NULL;
        bool is_exact = false;
        /* All its streams stand still: one may have been behind, and be missed earlier. */
        for (int tries = 0, factor = 1; tries < TRIES && !is_exact; tries++) {
            what = stop(m, victim(m, i), factor, &end);
            is_exact = what != NULL && strstr(what, m->at) != NULL;
            factor *= what != NULL ? 1 : 4;
        }
        expect(what != NULL && names_group(what), "in what", &end);
        num_exact += is_exact;
    }
    assert_true(4 * num_exact >= 3 * num_moments());
}

static void a_killed_rank_is_named_and_the_others_say_what_they_were_in(void **state)
{
    (void)state;
    for (size_t i = 0; i < num_moments(); i++) {
        struct crew_end end;
        const struct moment *m = &moments[i];
        int rank = victim(m, i + 1);
        char who[64];
        harm(m, rank, "kill", 1, &end);
        snprintf(who, sizeof(who), "rank %d: killed by signal 9 (SIGKILL)", rank);
        expect(strncmp(end.message, who, strlen(who)) == 0, "who", &end);
        expect_others(&end, rank, who);
        expect(strstr(end.message, "; on here after step ") != NULL, "where", &end);
        for (int32_t r = 0; r < end.num_ranks; r++)
            expect(r == rank || names_group(end.why[r]), "in what", &end);
    }
}

/* It runs, but never comes: the others' deadline finds it, whatever they wait in themselves. */
static void a_stuck_rank_is_named_at_the_deadline(void **state)
{
    (void)state;
    for (size_t i = 0; i < num_moments(); i += 4) {
        struct crew_end end;
        const struct moment *m = &moments[i];
        int rank = victim(m, i + 2);
        char who[64];
        snprintf(who, sizeof(who), "rank %d on here did not come to ", rank);
        for (int tries = 0, factor = 1; tries < TRIES; tries++, factor *= 3) {
            harm(m, rank, "hang", factor, &end);
            if (strncmp(end.message, who, strlen(who)) == 0 && strstr(end.message, m->at) != NULL)
                break;
        }
        expect(strncmp(end.message, who, strlen(who)) == 0, "who", &end);
        expect(strstr(end.message, m->at) != NULL, "in what", &end);
        expect(names_group(end.message), "which group", &end);
        expect_others(&end, rank, who);
    }
}

int main(void)
{
    setenv("TANDEM_LOG", "error", 0);
    log_init("crew");
    proctree_adopt_orphans(NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stopped_rank_is_named_with_what_the_others_wait_in),
        cmocka_unit_test(a_killed_rank_is_named_and_the_others_say_what_they_were_in),
        cmocka_unit_test(a_stuck_rank_is_named_at_the_deadline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
