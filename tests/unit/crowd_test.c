/* What each connection of the gRPC server has taken, and when it is hung up on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/rpc/crowd.h"

/* Calls are counted by connection, and a connection without calls is forgotten. */
static void calls_are_counted_by_connection(void **state)
{
    (void)state;
    struct crowd *c = crowd_new();
    struct crowd_member *a = crowd_enter(c, "ipv4:127.0.0.1:1"), *b = crowd_enter(c, "unix:");
    assert_ptr_equal(crowd_enter(c, "ipv4:127.0.0.1:1"), a);
    assert_int_equal(crowd_calls(a), 2);
    assert_int_equal(crowd_calls(b), 1);
    crowd_leave(a);
    crowd_leave(a);
    assert_int_equal(crowd_calls(crowd_enter(c, "ipv4:127.0.0.1:1")), 1);
    crowd_leave(b);
    crowd_free(c);
}

/* One connection's unread bytes are bounded, and so are everybody's; what was refused isn't owed.
 */
static void waiting_bytes_are_bounded(void **state)
{
    (void)state;
    struct crowd *c = crowd_new();
    struct crowd_member *m[2 * CROWD_MAX_BYTES / CROWD_MEMBER_MAX_BYTES];
    size_t num = sizeof m / sizeof *m, taken = 0;
    for (size_t i = 0; i < num; i++) {
        char name[16];
        snprintf(name, sizeof name, "fd:x%zu", i);
        m[i] = crowd_enter(c, name);
        assert_false(crowd_charge(m[i], CROWD_MEMBER_MAX_BYTES + 1));
        taken += crowd_charge(m[i], CROWD_MEMBER_MAX_BYTES);
    }
    assert_int_equal(taken, CROWD_MAX_BYTES / CROWD_MEMBER_MAX_BYTES);
    crowd_discharge(m[0], 1);
    assert_true(crowd_charge(m[0], 1));
    assert_false(crowd_charge(m[0], 1));
    crowd_free(c);
}

/* Calls that are taken back at once are allowed at a rate; those that lived are nobody's affair. */
static void resets_are_allowed_at_a_rate(void **state)
{
    (void)state;
    struct crowd *c = crowd_new();
    struct crowd_member *m = crowd_enter(c, "fd:x");
    int64_t now_ms = 1000000;
    for (int i = 0; i < 10 * CROWD_RESETS_MAX; i++) {
        assert_true(crowd_reset(m, now_ms - CROWD_RESET_MS - 1, now_ms));
    }
    for (int i = 0; i < CROWD_RESETS_MAX; i++) {
        assert_true(crowd_reset(m, now_ms, now_ms));
    }
    assert_false(crowd_reset(m, now_ms, now_ms));
    now_ms += 1000;
    for (int i = 0; i < CROWD_RESETS_PER_S - 1; i++) {
        assert_true(crowd_reset(m, now_ms, now_ms));
    }
    assert_false(crowd_reset(m, now_ms, now_ms));
    crowd_free(c);
}

/* Only the connection that was counted is hung up on, not the next one with its number. */
static void only_the_same_socket_is_hung_up_on(void **state)
{
    (void)state;
    int pair[2], other[2];
    char name[16], byte = 0;
    struct crowd *c = crowd_new();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    snprintf(name, sizeof name, "fd:%d", pair[0]);
    struct crowd_member *m = crowd_enter(c, name);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other), 0);
    assert_int_equal(dup2(other[0], pair[0]), pair[0]);
    crowd_hang_up(m);
    assert_int_equal(write(other[1], &byte, 1), 1);
    assert_int_equal(read(pair[0], &byte, 1), 1);
    crowd_leave(m);

    crowd_hang_up(crowd_enter(c, name));
    assert_int_equal(read(other[1], &byte, 1), 0);
    crowd_free(c);
    for (int i = 0; i < 2; i++) {
        close(pair[i]);
        close(other[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_counted_by_connection),
        cmocka_unit_test(waiting_bytes_are_bounded),
        cmocka_unit_test(resets_are_allowed_at_a_rate),
        cmocka_unit_test(only_the_same_socket_is_hung_up_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
