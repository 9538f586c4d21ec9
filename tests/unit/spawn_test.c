/* server/spawn: what it reads. All of this runs as root, for whoever may ask. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "server/spawn/spawn.h"

static const char good[] = "# whose work is done for whom\n"
                           "caller tandem\n"
                           "min_uid 2000  # people\n"
                           "\n"
                           "user ann\n"
                           "user b.o-b_7\n"
                           "group train\n"
                           "programs /usr/libexec/tandem\n"
                           "jobs /var/lib/tandem/jobs";

static void a_configuration_is_read_whole(void **state)
{
    (void)state;
    struct spawn_conf c;
    char why[SPAWN_WHY_SIZE] = "";
    assert_int_equal(spawn_conf_parse(&c, good, strlen(good), why), 0);
    assert_string_equal(c.caller, "tandem");
    assert_int_equal(c.min_uid, 2000);
    assert_int_equal(c.num_users, 2);
    assert_string_equal(c.users[1], "b.o-b_7");
    assert_string_equal(c.group, "train");
    assert_string_equal(c.programs, "/usr/libexec/tandem");
    assert_string_equal(c.jobs, "/var/lib/tandem/jobs");
}

/* Whatever isn't understood is refused: a slip of root's must not open a door. */
static void what_is_not_understood_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "caller",
        "caller a b",
        "caller tandem\ncaller other",
        "caller -x",
        "caller a:b",
        "caller abcdefghijabcdefghijabcdefghijabc",
        "min_uid 99",
        "min_uid 0",
        "min_uid -1",
        "min_uid 1000x",
        "min_uid 4294967295",
        "min_uid 99999999999999999999",
        "programs relative/path",
        "programs /a/../b",
        "programs /a/..",
        "programs /a//b",
        "programs /a/",
        "programs /",
        "jobs /var/lib/tandem",
        "jobs /jobs",
        "shell /bin/sh",
        "Caller tandem",
    };
    struct spawn_conf c;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[400], why[SPAWN_WHY_SIZE] = "";
        bool replaces = strncmp(bad[i], "jobs", 4) == 0 || strncmp(bad[i], "programs", 8) == 0;
        snprintf(text, sizeof text, "%s\n%s%s%s", bad[i],
                 strncmp(bad[i], "caller ", 7) == 0 ? "" : "caller tandem\n",
                 replaces && bad[i][0] == 'p' ? "" : "programs /usr/libexec/tandem\n",
                 replaces && bad[i][0] == 'j' ? "user ann\n" : "jobs /var/x/jobs\nuser ann\n");
        if (spawn_conf_parse(&c, text, strlen(text), why) == 0) {
            fail_msg("taken: %s", bad[i]);
        }
        assert_true(why[0] && strlen(why) < SPAWN_WHY_SIZE);
    }
    char why[SPAWN_WHY_SIZE];
    static const char zero[] = "caller tandem\0x\n";
    assert_int_equal(spawn_conf_parse(&c, zero, sizeof zero - 1, why), -1);
    assert_int_equal(spawn_conf_parse(&c, "", 0, why), -1);
}

static int ask(const char *line)
{
    char copy[300], why[SPAWN_WHY_SIZE] = "", *argv[16], *save;
    struct spawn_request r;
    int argc = 0;
    snprintf(copy, sizeof copy, "tandem-spawn %s", line);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    int rc = spawn_request_parse(&r, argc, argv, why);
    assert_int_equal(rc != 0, why[0] != 0);
    return rc;
}

static void only_whole_requests_are_taken(void **state)
{
    (void)state;
    assert_int_equal(ask("check ann"), 0);
    assert_int_equal(ask("probe ann"), 0);
    assert_int_equal(ask("node ann 7 1"), 0);
    assert_int_equal(ask("kill ann 7 1 4711 123456 9"), 0);
    assert_int_equal(ask("kill ann 7 1 4711 0 0"), 0);
    static const char *const bad[] = {
        "",
        "check",
        "check ann ann",
        "sh ann",
        "node ann 7",
        "node ann 7 1 --jobs",
        "node ann -7 1",
        "node ann 0 1",
        "node ann 7 0",
        "node ann 7/../8 1",
        "node ann 7 2147483648",
        "node ann 9223372036854775808 1",
        "node ann 0x7 1",
        "node -7 7 1",
        "node ann: 7 1",
        "probe ../root",
        "kill ann 7 1 1 5 9",
        "kill ann 7 1 -4711 5 9",
        "kill ann 7 1 4711 5 19",
        "kill ann 7 1 4711 5 TERM",
        "kill ann 7 1 4711 5",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (ask(bad[i]) == 0) {
            fail_msg("taken: %s", bad[i]);
        }
    }
}

/* Bytes of all kinds, and good files with a few changed: an answer, and what is taken keeps to its
 * bounds. */
static void damaged_configurations_are_answered(void **state)
{
    (void)state;
    int taken = 0;
    uint64_t at = 0;
    for (int i = 0; i < 20000; i++) {
        char text[sizeof good], why[SPAWN_WHY_SIZE] = "";
        struct spawn_conf c;
        memcpy(text, good, sizeof good);
        for (uint64_t n = rng_u64(7, 0, at++) % 4; n > 0; n--) {
            size_t where = rng_u64(7, 0, at++) % (sizeof good - 1);
            text[where] = (char)rng_u64(7, 0, at++);
        }
        size_t len = i % 3 ? sizeof good - 1 : rng_u64(7, 0, at++) % (sizeof good - 1);
        if (spawn_conf_parse(&c, text, len, why) == 0) {
            taken++;
            assert_true(c.min_uid >= 100 && c.num_users <= SPAWN_USERS_MAX);
            assert_true(c.jobs[0] == '/' && c.programs[0] == '/' && spawn_is_name(c.caller));
            assert_null(strstr(c.programs, "/../"));
        } else {
            assert_true(why[0] != 0);
        }
    }
    assert_in_range(taken, 1, 19999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_configuration_is_read_whole),
        cmocka_unit_test(what_is_not_understood_is_refused),
        cmocka_unit_test(only_whole_requests_are_taken),
        cmocka_unit_test(damaged_configurations_are_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
