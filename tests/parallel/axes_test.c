/* runtime/parallel/axes: which ranks talk to which, for every kind of mesh. What is expected is
 * worked out here from coordinates alone, rank by rank. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "plan/memory.h"
#include "runtime/parallel/axes.h"
#include "tests/parallel/comm_gang.h"

#define DEADLINE_MS 60000

struct shape {
    int64_t data, pipeline, tensor, zero_stage, shard_size, kv_heads;
};

/* A plan with the parts that axes look at. */
struct small_plan {
    Plan plan;
    Mesh mesh;
    JobSpec spec;
    ParallelChoice choice;
    ParallelSpec layout;
    ModelFacts model;
    ModelConfig config;
};

static void plan_of(const struct shape *s, struct small_plan *p)
{
    plan__init(&p->plan);
    job_spec__init(&p->spec);
    model_facts__init(&p->model);
    model_config__init(&p->config);
    parallel_spec__init(&p->layout);
    p->layout.data = s->data;
    p->layout.pipeline = s->pipeline;
    p->layout.tensor = s->tensor;
    p->layout.context = p->layout.expert = 1;
    p->layout.zero_stage = s->zero_stage;
    p->layout.shard_size = s->shard_size;
    p->config.num_key_value_heads = s->kv_heads;
    assert_int_equal(mesh_init(&p->mesh, &p->layout, NULL), 0);
    parallel_choice__init(&p->choice);
    p->choice.layout = &p->layout;
    p->spec.parallel = &p->choice;
    p->model.config = &p->config;
    p->plan.spec = &p->spec;
    p->plan.mesh = &p->mesh;
    p->plan.model = &p->model;
}

static const struct axes_means nobody;

static int open_all(struct gang_rank *r, struct axes *a, const Plan *plan, struct error *err)
{
    struct comm_world *w = comm_host_as_world(r->world);
    const struct axes_means means = {.world = w, .dev = &r->dev, .host_world = w, .host = &r->dev};
    return axes_open(a, plan, r->rank, &means, err);
}

/* ---- what has to come out ---------------------------------------------------------------------
 */

enum group { TENSOR, KV, SHARD, REPLICAS, ALL, NUM_GROUPS };

static bool same_group(const struct shape *s, enum group group, int32_t a, int32_t b)
{
    int64_t t[2], p[2], d[2], ranks[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        t[i] = ranks[i] % s->tensor;
        p[i] = ranks[i] / s->tensor % s->pipeline;
        d[i] = ranks[i] / s->tensor / s->pipeline;
    }
    int64_t block = s->zero_stage == 0 ? 1 : s->shard_size ? s->shard_size : s->data;
    bool same_data = d[0] == d[1], same_tensor = t[0] == t[1], same_stage = p[0] == p[1];
    switch (group) {
    case TENSOR:
        return same_data && same_stage;
    case KV:
        return same_data && same_stage &&
               (same_tensor || (s->kv_heads < s->tensor &&
                                t[0] * s->kv_heads / s->tensor == t[1] * s->kv_heads / s->tensor));
    case SHARD:
        return same_tensor && same_stage && d[0] / block == d[1] / block;
    case REPLICAS:
        return same_tensor && same_stage && d[0] % block == d[1] % block;
    default:
        return true;
    }
}

/* Each member gives 1 + its rank squared: a sum that no other set of so few ranks has. */
static double mark(int32_t rank)
{
    return 1.0 + (double)rank * rank;
}

static void expect_group(struct gang_rank *r, struct comm *c, enum group group, int rounds)
{
    const struct shape *s = r->arg;
    struct error err = {0};
    double want = 0.0;
    int32_t size = 0, place = 0;
    for (int32_t i = 0; i < r->size; i++) {
        if (same_group(s, group, r->rank, i)) {
            place = i == r->rank ? size : place;
            size++;
            want += mark(i);
        }
    }
    GANG_CHECK(r, (c == NULL) == (size == 1));
    GANG_CHECK(r, c == NULL || (c->size == size && c->rank == place));
    for (int i = 0; c != NULL && i < rounds; i++) {
        double word = mark(r->rank);
        GANG_CHECK(r, c->ops->all_reduce(c, NULL, &word, 1, DTYPE_F64, COMM_SUM, &err) == 0);
        GANG_CHECK(r, word == want);
    }
}

static void open_and_talk(struct gang_rank *r)
{
    struct small_plan p;
    struct axes a;
    struct error err = {0};
    plan_of(r->arg, &p);
    GANG_CHECK(r, open_all(r, &a, &p.plan, &err) == 0);
    GANG_CHECK(r, a.rank == r->rank && a.num_ranks == r->size);
    GANG_CHECK(r, mesh_rank(&p.mesh, a.coord) == r->rank);
    GANG_CHECK(r, a.shard_idx + a.replica_idx * a.shard_size == a.coord.data);
    /* In different orders, and some more often: communicators with the same members are apart. */
    struct comm *comms[] = {a.tensor, a.kv_replicas, a.shard, a.replicas,
                            a.world,  a.gather,      a.save};
    const enum group groups[] = {TENSOR, KV, SHARD, REPLICAS, ALL, SHARD, ALL};
    /* Of an accelerator each of them but the saver's takes memory that the plan reckons with. */
    int32_t num = 0;
    for (int i = 0; i < 6; i++)
        num += comms[i] != NULL;
    GANG_CHECK(r, p.layout.pipeline > 1 || num == memory_num_communicators(&p.config, &p.layout));
    for (int i = 6; i >= 0 && !r->why[0]; i--)
        expect_group(r, comms[i], groups[i], 1 + i % 3);
    for (int i = 0; i < 7 && !r->why[0]; i++)
        expect_group(r, comms[i], groups[i], 2);
    axes_close(&a);
    GANG_CHECK(r, r->why[0] != 0 || a.world == NULL);
}

static void talk(struct shape s)
{
    int32_t num = (int32_t)(s.data * s.pipeline * s.tensor);
    gang_run_threads(num, 0, DEADLINE_MS, open_and_talk, &s);
}

/* data, pipeline, tensor, zero_stage, shard_size, KV heads. [34] Sizes that aren't powers of two
 * too.
 */
static void every_rank_talks_to_whom_its_coordinates_say(void **state)
{
    (void)state;
    talk((struct shape){2, 1, 1, 0, 0, 4});
    talk((struct shape){1, 1, 4, 0, 0, 4});
    talk((struct shape){2, 1, 3, 0, 0, 3});
    talk((struct shape){3, 1, 2, 0, 0, 2});
    talk((struct shape){5, 1, 1, 3, 0, 1});
    talk((struct shape){4, 1, 2, 1, 0, 4});
    talk((struct shape){4, 1, 2, 2, 2, 4});
    talk((struct shape){6, 1, 1, 3, 2, 1});
    talk((struct shape){6, 1, 2, 3, 3, 2});
    talk((struct shape){2, 1, 6, 1, 2, 3});
    talk((struct shape){2, 1, 4, 3, 1, 2});
    talk((struct shape){1, 1, 8, 0, 0, 2});
    talk((struct shape){2, 2, 2, 2, 0, 1});
    talk((struct shape){4, 3, 1, 3, 2, 1});
}

static void one_rank_has_no_communicator(void **state)
{
    (void)state;
    struct shape s = {1, 1, 1, 3, 0, 1};
    struct small_plan p;
    struct axes a;
    plan_of(&s, &p);
    assert_int_equal(axes_open(&a, &p.plan, 0, &nobody, NULL), 0);
    assert_null(a.tensor);
    assert_null(a.kv_replicas);
    assert_null(a.shard);
    assert_null(a.replicas);
    assert_null(a.world);
    assert_null(a.gather);
    assert_null(a.save);
    assert_int_equal(a.shard_size, 1);
    assert_int_equal(a.num_replicas, 1);
    axes_close(&a);
}

static void a_layout_that_does_not_come_out_even_is_refused(void **state)
{
    (void)state;
    struct error err = {0};
    struct axes a;
    struct small_plan p;
    struct shape blocks = {6, 1, 1, 3, 4, 1}, heads = {1, 1, 4, 0, 0, 3};
    plan_of(&blocks, &p);
    assert_int_equal(axes_open(&a, &p.plan, 0, &nobody, &err), -1);
    assert_non_null(strstr(err.text, "6 data ranks can't be in blocks of 4"));
    plan_of(&heads, &p);
    assert_int_equal(axes_open(&a, &p.plan, 0, &nobody, &err), -1);
    assert_non_null(strstr(err.text, "3 KV heads can't be copied to 4 tensor ranks"));
    plan_of(&blocks, &p);
    assert_int_equal(axes_open(&a, &p.plan, 6, &nobody, &err), -1);
    assert_non_null(strstr(err.text, "there is no rank 6 of 6"));
}

/* ---- how little it costs ----------------------------------------------------------------------
 */

/* Room is address space: the communicators of the largest gang touch little of it. */
static void communicators_of_256_ranks_cost_only_what_they_touch(void **state)
{
    (void)state;
    enum { NUM = 256 };
    static struct comm_host_world *worlds[NUM];
    static struct axes axes[NUM];
    struct shape s = {32, 1, 8, 3, 8, 2};
    struct small_plan p;
    struct stat before, after;
    struct error err = {0};
    int fd;
    plan_of(&s, &p);
    assert_int_equal(comm_host_segment_new(NUM, 0, &fd, &err), 0);
    assert_int_equal(fstat(fd, &before), 0);
    for (int32_t i = 0; i < NUM; i++) {
        assert_int_equal(comm_host_open(&worlds[i], fd, i, NUM, DEADLINE_MS, &err), 0);
        struct comm_world *w = comm_host_as_world(worlds[i]);
        const struct axes_means means = {.world = w, .host_world = w};
        assert_int_equal(axes_open(&axes[i], &p.plan, i, &means, &err), 0);
    }
    assert_int_equal(fstat(fd, &after), 0);
    int64_t touched = (int64_t)(after.st_blocks - before.st_blocks) * 512;
    print_message("touched %lld KiB of %lld GiB\n", (long long)touched >> 10,
                  (long long)after.st_size >> 30);
    assert_true(touched < (int64_t)8 << 20);
    for (int32_t i = 0; i < NUM; i++) {
        axes_close(&axes[i]);
        comm_host_close(worlds[i]);
    }
    close(fd);
}

/* ---- what is said when one is missing ---------------------------------------------------------
 */

static const char *const hosts[] = {"n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"};
static _Atomic int num_past;

/* data 4 x tensor 2, all make two calls: a sum of the tensor group, then one of the shard group.
 * Rank 5 never comes. Most miss it, or rank 4, in the second; and the deadline passes there, for
 * rank 0, who comes when rank 4 waits itself: rank 5 is missing in the first call already. */
static void miss_one(struct gang_rank *r)
{
    struct small_plan p;
    struct axes a;
    struct error err = {0};
    double *mine = calloc(8192, sizeof(*mine));
    int64_t until = clock_mono_ms() + DEADLINE_MS;
    plan_of(r->arg, &p);
    comm_host_set_hosts(r->world, hosts);
    GANG_CHECK(r, open_all(r, &a, &p.plan, &err) == 0);
    while (r->rank == 4 && atomic_load(&num_past) < 6 && clock_mono_ms() < until)
        clock_sleep_ms(1);
    int rc = -1;
    if (r->rank == 0)
        gang_await_waiter(r, 0);
    if (r->rank != 5)
        rc = a.tensor->ops->all_reduce(a.tensor, NULL, mine, 4096, DTYPE_F64, COMM_SUM, &err);
    if (rc == 0) {
        atomic_fetch_add(&num_past, 1);
        if (r->rank == 0)
            gang_await_waiter(r, 5);
        comm_say(a.shard, "bucket %d", 3);
        rc = a.shard->ops->reduce_scatter(a.shard, NULL, mine, mine, 2048, DTYPE_F64, &err);
    }
    const char *why = "rank 5 on n3 did not come to all-reduce of 4,096 fp64 over the tensor group "
                      "(ranks 4-5) within 3.0 s";
    const char *doing = "reduce-scatter of bucket 3 (2,048 fp64) over the shard group (data 0-3): ";
    bool good =
        r->rank == 5 || (rc == -1 && err.code == ERR_DEADLINE_EXCEEDED && strstr(err.text, why) &&
                         (r->rank == 4 || strstr(err.text, doing)));
    snprintf(r->why, sizeof(r->why), "%.100s", good ? "" : err.text);
    free(mine);
    axes_close(&a);
}

static void the_missing_rank_is_named_with_host_operation_and_group(void **state)
{
    (void)state;
    struct shape s = {4, 1, 2, 1, 0, 2};
    int64_t deadlines_ms[8] = {3000};
    for (int i = 1; i < 8; i++)
        deadlines_ms[i] = DEADLINE_MS;
    gang_run_threads_until(8, deadlines_ms, miss_one, &s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_talks_to_whom_its_coordinates_say),
        cmocka_unit_test(one_rank_has_no_communicator),
        cmocka_unit_test(a_layout_that_does_not_come_out_even_is_refused),
        cmocka_unit_test(communicators_of_256_ranks_cost_only_what_they_touch),
        cmocka_unit_test(the_missing_rank_is_named_with_host_operation_and_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
