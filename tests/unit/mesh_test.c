/* Ranks and their coordinates. */
#include "plan/mesh.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static Mesh mesh_of(int64_t data, int64_t pipeline, int64_t context, int64_t tensor)
{
    ParallelSpec layout = PARALLEL_SPEC__INIT;
    layout.data = data;
    layout.pipeline = pipeline;
    layout.context = context;
    layout.tensor = tensor;
    Mesh mesh;
    struct error err = {0};
    assert_int_equal(mesh_init(&mesh, &layout, &err), 0);
    return mesh;
}

/* Tensor innermost, data outermost; rank and coordinate are inverse of each other. */
static void every_rank_has_its_own_coordinate(void **state)
{
    (void)state;
    Mesh mesh = mesh_of(3, 2, 5, 4);
    assert_int_equal(mesh.num_ranks, 120);
    for (int32_t r = 0; r < 120; r++) {
        struct mesh_coord c = mesh_coord(&mesh, r);
        assert_int_equal(((c.data * 2 + c.pipeline) * 5 + c.context) * 4 + c.tensor, r);
        assert_int_equal(mesh_rank(&mesh, c), r);
    }
}

/* The groups of an axis cut the ranks into equal parts, and members agree on their group. */
static void groups_of_an_axis_partition_the_ranks(void **state)
{
    (void)state;
    Mesh mesh = mesh_of(3, 2, 5, 4);
    static const Axis axes[] = {AXIS_DATA, AXIS_PIPELINE, AXIS_CONTEXT, AXIS_TENSOR, AXIS_EXPERT};
    static const int32_t sizes[] = {3, 2, 5, 4, 1};
    for (int a = 0; a < 5; a++) {
        for (int32_t r = 0; r < 120; r++) {
            int32_t mine[8], theirs[8];
            assert_int_equal(mesh_group(&mesh, axes[a], r, mine), sizes[a]);
            bool inside = false;
            for (int32_t i = 0; i < sizes[a]; i++) {
                assert_true(i == 0 || mine[i] > mine[i - 1]);
                inside = inside || mine[i] == r;
                assert_int_equal(mesh_group(&mesh, axes[a], mine[i], theirs), sizes[a]);
                assert_memory_equal(mine, theirs, (size_t)sizes[a] * sizeof mine[0]);
            }
            assert_true(inside);
        }
    }
}

static void tensor_peers_are_neighbours(void **state)
{
    (void)state;
    Mesh mesh = mesh_of(2, 1, 1, 4);
    int32_t ranks[4];
    mesh_group(&mesh, AXIS_TENSOR, 6, ranks);
    for (int32_t i = 0; i < 4; i++) {
        assert_int_equal(ranks[i], 4 + i);
    }
}

/* The expert axis is carved from data x context: neighbours there, context first; it either fills
 * whole context groups or lies in one. Pipeline and tensor places are the same in a group. */
static void expert_groups_are_carved_from_data_and_context(void **state)
{
    (void)state;
    static const int64_t cases[][5] = {/* data, pipeline, context, tensor, expert */
                                       {4, 2, 2, 2, 4}, {4, 1, 4, 2, 2}, {8, 2, 1, 1, 4},
                                       {6, 2, 3, 2, 9}, {2, 1, 6, 1, 3}, {1, 1, 1, 4, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Mesh mesh = mesh_of(cases[i][0], cases[i][1], cases[i][2], cases[i][3]);
        mesh.expert = cases[i][4];
        int32_t ranks[16], seen[256] = {0};
        for (int32_t r = 0; r < mesh.num_ranks; r++) {
            int32_t n = mesh_group(&mesh, AXIS_EXPERT, r, ranks);
            assert_int_equal(n, mesh.expert);
            struct mesh_coord own = mesh_coord(&mesh, r);
            int64_t first = (own.data * mesh.context + own.context) / n * n;
            for (int32_t k = 0; k < n; k++) {
                struct mesh_coord c = mesh_coord(&mesh, ranks[k]);
                assert_true(c.pipeline == own.pipeline && c.tensor == own.tensor);
                assert_int_equal(c.data * mesh.context + c.context, first + k);
                seen[ranks[k]]++;
            }
        }
        for (int32_t r = 0; r < mesh.num_ranks; r++) {
            assert_int_equal(seen[r], mesh.expert);
        }
    }
}

static void an_expert_axis_that_cannot_be_carved_is_refused(void **state)
{
    (void)state;
    struct error err = {0};
    Mesh mesh;
    ParallelSpec layout = PARALLEL_SPEC__INIT;
    layout.data = 4;
    layout.context = 3;
    layout.expert = 4;
    assert_int_equal(mesh_init(&mesh, &layout, &err), -1);
    assert_non_null(strstr(err.text, "parallel.expert: 4 can't be carved"));
    layout.expert = 6;
    assert_int_equal(mesh_init(&mesh, &layout, &err), 0);
}

/* Sizes from a request: no overflow, a sentence that names the axis. */
static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    struct error err = {0};
    Mesh mesh;
    ParallelSpec layout = PARALLEL_SPEC__INIT;
    layout.data = 0;
    assert_int_equal(mesh_init(&mesh, &layout, &err), -1);
    assert_non_null(strstr(err.text, "parallel.data: 0"));
    layout.data = INT64_MAX;
    assert_int_equal(mesh_init(&mesh, &layout, &err), -1);
    layout.data = layout.tensor = layout.pipeline = layout.context = MESH_MAX_RANKS;
    assert_int_equal(mesh_init(&mesh, &layout, &err), -1);
    assert_non_null(strstr(err.text, "more than 131072 ranks"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_has_its_own_coordinate),
        cmocka_unit_test(groups_of_an_axis_partition_the_ranks),
        cmocka_unit_test(tensor_peers_are_neighbours),
        cmocka_unit_test(expert_groups_are_carved_from_data_and_context),
        cmocka_unit_test(an_expert_axis_that_cannot_be_carved_is_refused),
        cmocka_unit_test(impossible_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
