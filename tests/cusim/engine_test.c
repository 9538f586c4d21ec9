/* The simulator runs what is right, and gets it right: kernels that use all it has, in every
 * schedule, against plain loops. What it has to find is in faults_test.py. */
#include "tests/cusim/side.h"

#include "tests/cusim/right.h"

static uint64_t drawn = 1;

static unsigned draw(void)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(drawn >> 40);
}

/* Small whole numbers: bf16 has them all, and sums of products are exact. */
static uint16_t draw_bf16(float *value)
{
    *value = (float)(int)(draw() % 17) - 8;
    uint32_t bits;
    memcpy(&bits, value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static void check_matmul(int m, int n, int k)
{
    int ld = (k + 7) / 8 * 8;
    cudaStream_t s = stream_open();
    float *x = calloc((size_t)(m * ld), sizeof *x);
    float *y = calloc((size_t)(n * ld), sizeof *y);
    uint16_t *a = calloc((size_t)(m * ld), sizeof *a);
    uint16_t *b = calloc((size_t)(n * ld), sizeof *b);
    float *got = malloc((size_t)(m * n) * sizeof *got);
    for (int i = 0; i < m * ld; i++) {
        a[i] = i % ld < k ? draw_bf16(&x[i]) : 0;
    }
    for (int i = 0; i < n * ld; i++) {
        b[i] = i % ld < k ? draw_bf16(&y[i]) : 0;
    }
    void *da = side_put(s, a, (size_t)(m * ld) * 2);
    void *db = side_put(s, b, (size_t)(n * ld) * 2);
    void *dc = side_put(s, NULL, (size_t)(m * n) * 4);
    MUST(right_matmul(s, dc, da, db, m, n, k, ld));
    side_get(s, got, dc, (size_t)(m * n) * 4);
    for (int i = 0; i < m * n; i++) {
        float want = 0;
        for (int j = 0; j < k; j++) {
            want += x[i / n * ld + j] * y[i % n * ld + j];
        }
        assert_true(got[i] == want);
    }
    side_free(da, 0);
    side_free(db, 0);
    side_free(dc, 0);
    free(x);
    free(y);
    free(a);
    free(b);
    free(got);
    MUST(cudaStreamDestroy(s));
}

/* Fragments lie where PTX says; tiles that end in the middle of everything. */
static void products_of_tensor_cores_are_exact(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        check_matmul(1, 1, 1);
        check_matmul(17, 9, 33);
        check_matmul(37, 41, 71);
    }
}

static void a_matrix_is_transposed_through_shared_memory(void **state)
{
    (void)state;
    enum { M = 33, N = 47 };
    float x[M * N], got[N * M];
    for (int i = 0; i < M * N; i++) {
        x[i] = (float)i;
    }
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        cudaStream_t s = stream_open();
        void *dx = side_put(s, x, sizeof x);
        void *dy = side_put(s, NULL, sizeof got);
        MUST(right_transpose(s, dy, dx, M, N));
        side_get(s, got, dy, sizeof got);
        for (int j = 0; j < N * M; j++) {
            assert_true(got[j] == x[j % M * N + j / M]);
        }
        side_free(dx, 0);
        side_free(dy, 0);
        MUST(cudaStreamDestroy(s));
    }
}

static void atomics_count_each_number_once(void **state)
{
    (void)state;
    enum { N = 1001, BINS = 7 };
    unsigned x[N];
    int want[BINS] = {0}, got[BINS];
    for (int i = 0; i < N; i++) {
        x[i] = draw();
        want[x[i] % BINS]++;
    }
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        cudaStream_t s = stream_open();
        void *dx = side_put(s, x, sizeof x);
        void *counts = side_put(s, NULL, sizeof got);
        MUST(cudaMemsetAsync(counts, 0, sizeof got, s));
        MUST(right_histogram(s, counts, dx, N, BINS));
        side_get(s, got, counts, sizeof got);
        assert_memory_equal(got, want, sizeof want);
        side_free(dx, 0);
        side_free(counts, 0);
        MUST(cudaStreamDestroy(s));
    }
}

static void check_warps(const float *x, int n)
{
    cudaStream_t s = stream_open();
    int *votes = malloc((size_t)n * sizeof *votes);
    int *above = malloc((size_t)n * sizeof *above);
    float *sums = malloc((size_t)n * sizeof *sums);
    void *dx = side_put(s, x, (size_t)n * 4);
    void *dvotes = side_put(s, NULL, (size_t)n * 4);
    void *dabove = side_put(s, NULL, (size_t)n * 4);
    void *dsums = side_put(s, NULL, (size_t)n * 4);
    MUST(right_votes(s, dvotes, dabove, dx, n));
    MUST(right_half_warps(s, dsums, dx, n));
    side_get(s, votes, dvotes, (size_t)(n + 31) / 32 * 4);
    side_get(s, above, dabove, (size_t)n * 4);
    side_get(s, sums, dsums, (size_t)n * 4);
    int num_above = 0;
    for (int i = 0; i < n; i++) {
        num_above = i % 32 == 0 ? 0 : num_above;
        assert_int_equal(above[i], num_above);
        num_above += x[i] > 0;
        if (i % 32 == 31 || i == n - 1) {
            assert_int_equal(votes[i / 32], num_above);
        }
        float want = 0;
        for (int j = i / 8 * 8; j < i / 8 * 8 + 8 && j < n; j++) {
            want += x[j];
        }
        assert_true(sums[i] == want);
    }
    side_free(dx, 0);
    side_free(dvotes, 0);
    side_free(dabove, 0);
    side_free(dsums, 0);
    free(votes);
    free(above);
    free(sums);
    MUST(cudaStreamDestroy(s));
}

static void lanes_vote_and_shuffle_in_parts_of_a_warp(void **state)
{
    (void)state;
    float x[257];
    for (int i = 0; i < 257; i++) {
        x[i] = (float)(int)(draw() % 9) - 4;
    }
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        schedule_take(i);
        check_warps(x, 257);
        check_warps(x, 1);
    }
}

static void a_block_votes_at_its_barrier(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_SCHEDULES; i++) {
        for (int num = 0; num <= 96; num += 48) {
            schedule_take(i);
            int x[96] = {0}, got[3];
            for (int j = 0; j < num; j++) {
                x[(j * 5 + 3) % 96] = 7;
            }
            cudaStream_t s = stream_open();
            void *dx = side_put(s, x, sizeof x);
            void *out = side_put(s, NULL, sizeof got);
            MUST(right_block_votes(s, out, dx));
            side_get(s, got, out, sizeof got);
            assert_int_equal(got[0], num);
            assert_int_equal(got[1], num > 0);
            assert_int_equal(got[2], num == 96);
            side_free(dx, 0);
            side_free(out, 0);
            MUST(cudaStreamDestroy(s));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_tensor_cores_are_exact),
        cmocka_unit_test(a_matrix_is_transposed_through_shared_memory),
        cmocka_unit_test(atomics_count_each_number_once),
        cmocka_unit_test(lanes_vote_and_shuffle_in_parts_of_a_warp),
        cmocka_unit_test(a_block_votes_at_its_barrier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
