/* A race for an operand of a product is found, though the product's loops are compiled without
 * ThreadSanitizer (kernels/host/variant/watch.h). Only built with it.
 *
 * product_race_test BACKEND TYPE OPERAND: what the test starts itself as: one thread multiplies,
 * another one writes a number of A, B or C, or nothing (-), unordered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/parity/ops_case.h"

enum { M = 37, N = 29, K = 41, MOST = 64 * 64 };

#define FOUND 66 /* ThreadSanitizer's exit code */

static void *write_one(void *at)
{
    *(volatile char *)at = 0;
    return NULL;
}

/* The last number of each operand, which is also a tile's last. */
static void *last_of(const struct gemm_args *g, size_t size, char operand)
{
    const void *at = operand == 'a' ? g->a : operand == 'b' ? g->b : g->c;
    int64_t idx = operand == 'a'   ? (M - 1) * g->lda + K - 1
                  : operand == 'b' ? (N - 1) * g->ldb + K - 1
                                   : (M - 1) * g->ldc + N - 1;
    return (char *)(uintptr_t)at + (size_t)idx * size;
}

static int race(const char *backend, const char *type, char operand)
{
    enum dtype t = strcmp(type, "bf16") == 0 ? DTYPE_BF16 : DTYPE_F32;
    struct side side = side_open(backend, 1);
    struct gemm_args g = {
        .trans_b = true,
        .m = M,
        .n = N,
        .k = K,
        .alpha = 1,
        .a = side_draw(&side, t, MOST, 1, 1),
        .lda = K + 2,
        .b = side_draw(&side, t, MOST, 2, 1),
        .ldb = K + 1,
        .c = side_zeros(&side, t, MOST),
        .ldc = N + 3,
        .c_type = t,
    };
    struct error err = {0};
    pthread_t other;
    bool writes = operand != '-';
    if (writes &&
        pthread_create(&other, NULL, write_one, last_of(&g, dtype_size(t), operand)) != 0) {
        return 1;
    }
    int rc = side.k->gemm(side.dev, side.s, t, &g, &err);
    if (writes) {
        pthread_join(other, NULL);
    }
    return rc != 0;
}

static int exit_code_of(const char *backend, const char *type, const char *operand)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDERR_FILENO);
        execl("/proc/self/exe", "product_race_test", backend, type, operand, (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_race_for_an_operand_is_found(void **state)
{
    (void)state;
    static const char *const backends[] = {"ref", "cpu"};
    static const char *const types[] = {"f32", "bf16"};
    static const char *const operands[] = {"-", "a", "b", "c"};
    for (int i = 0; i < 16; i++) {
        const char *backend = backends[i / 8], *type = types[i / 4 % 2], *operand = operands[i % 4];
        int code = exit_code_of(backend, type, operand);
        if (code != (i % 4 == 0 ? 0 : FOUND)) {
            fail_msg("%s %s: operand %s: exit code %d", backend, type, operand, code);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc == 4) {
        return race(argv[1], argv[2], argv[3][0]);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_race_for_an_operand_is_found),
    };
    return cmocka_run_group_tests_name("race", tests, NULL, NULL);
}
