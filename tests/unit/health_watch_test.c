/* tandem-node believes little of what it is told of its GPUs: the watch is a script here that says
 * what it is given, says nonsense, or nothing. */
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "plan/device_faults.h"
#include "runtime/link/link.h"
#include "runtime/node/health.h"
#include "tests/deadline.h"

struct told {
    int num_events, num_notes;
    char event[240], note[240];
};

static char root[64];
static struct told told;
static int64_t last_words_ms; /* 0 = as in use */
static RankPlacement places[2];
static RankPlacement *place_list[2] = {&places[0], &places[1]};
static Plan plan;

static void on_event(void *arg, const DeviceEvent *e)
{
    (void)arg;
    told.num_events++;
    assert_string_equal(e->node, "box");
    device_faults_words(e, told.event, sizeof told.event);
}

static void on_note(void *arg, const char *words)
{
    (void)arg;
    told.num_notes++;
    snprintf(told.note, sizeof told.note, "%s", words);
}

/* What was killed and wasn't gone at once: none runs on. */
static void reap_all(void)
{
    deadline_begin(DEADLINE_S, "the end of a watch");
    while (waitpid(-1, NULL, 0) > 0) {
    }
    deadline_end();
}

static int set_up(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/health_watch_test_XXXXXX");
    assert_non_null(mkdtemp(root));
    memset(&told, 0, sizeof told);
    last_words_ms = 0;
    plan__init(&plan);
    plan.backend = (char *)(uintptr_t) "cuda";
    for (int i = 0; i < 2; i++) {
        rank_placement__init(&places[i]);
        places[i].node = (char *)(uintptr_t) "box";
        places[i].has_device = 1;
        places[i].device = 3 + i;
    }
    plan.placement = place_list;
    plan.n_placement = 2;
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    reap_all();
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void write_file(const char *name, const void *data, size_t len, mode_t mode)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static void add(struct buf *out, Tandem__V1__WatchUp__BodyCase what, void *body)
{
    WatchUp up = WATCH_UP__INIT;
    up.body_case = what;
    up.event = body; /* the members of the union are pointers */
    assert_int_equal(link_frame(out, &up.base, NULL), 0);
}

static void add_event(struct buf *out, int32_t device, int kind, int32_t xid)
{
    DeviceEvent e = DEVICE_EVENT__INIT;
    e.has_device = e.has_kind = e.has_xid = 1;
    e.device = device;
    e.kind = (DeviceEventKind)kind;
    e.xid = xid;
    add(out, WATCH_UP__BODY_EVENT, &e);
}

/* A watch that does what the script says; $0.bytes are said. */
static struct health *start(const char *script, const struct buf *bytes)
{
    struct health_options options = {
        .bin_dir = root,
        .plan = &plan,
        .on_event = on_event,
        .on_note = on_note,
        .found_ms = 300,
        .again_ms = 100,
        .last_words_ms = last_words_ms,
    };
    write_file("tandem-probe", script, strlen(script), 0700);
    write_file("tandem-probe.bytes", bytes ? bytes->data : "", bytes ? bytes->len : 0, 0600);
    struct health *h = health_start(&options);
    assert_non_null(h);
    return h;
}

/* Takes what comes until the watch has ended, or enough was told. */
static void hear(struct health *h, int num_events, int num_notes)
{
    int64_t until = clock_mono_ms() + DEADLINE_S * 1000;
    while (health_fd(h) >= 0 && (told.num_events < num_events || told.num_notes < num_notes)) {
        struct pollfd p = {.fd = health_fd(h), .events = POLLIN};
        assert_true(clock_mono_ms() < until);
        poll(&p, 1, 100);
        health_take(h);
    }
}

static void hear_out(struct health *h)
{
    hear(h, INT_MAX, INT_MAX);
}

#define SAY "#!/bin/sh\ncat \"$0.bytes\"\n"
#define SAY_AND_STAY SAY "exec cat >/dev/null\n"

static void an_attempt_on_cpus_has_no_watch(void **state)
{
    (void)state;
    struct health_options options = {.bin_dir = root, .plan = &plan};
    plan.backend = (char *)(uintptr_t) "cpu";
    assert_null(health_start(&options));
    assert_int_equal(health_fd(NULL), -1);
    assert_null(health_pins(NULL));
    assert_string_equal(health_cause(NULL), "");
    health_take(NULL);
    health_finish(NULL, true);
    health_free(NULL);
}

/* A hard fault is remembered before a soft one; the newest of its kind. */
static void what_is_heard_is_told_and_is_the_cause_of_a_death(void **state)
{
    (void)state;
    struct buf bytes = {0};
    add_event(&bytes, 4, DEVICE_XID, 31);
    add_event(&bytes, 4, DEVICE_XID, 79);
    add_event(&bytes, 3, DEVICE_XID, 13);
    add_event(&bytes, 3, DEVICE_SLOWED, 0);
    struct health *h = start(SAY_AND_STAY, &bytes);
    hear(h, 4, 0);
    health_finish(h, true);
    assert_int_equal(told.num_events, 4);
    assert_int_equal(told.num_notes, 0);
    assert_string_equal(health_cause(h),
                        "GPU 4 of box (rank 1): XID 79: GPU has fallen off the bus; ");
    health_free(h);
    buf_free(&bytes);
}

/* The driver's word may come just behind the death: when the gang is gone the watch looks once
 * more. */
static void a_word_behind_a_death_is_its_cause(void **state)
{
    (void)state;
    struct buf bytes = {0};
    add_event(&bytes, 4, DEVICE_XID, 48);
    last_words_ms = DEADLINE_S * 1000;
    struct health *h = start("#!/bin/sh\ncat >/dev/null\nsleep 0.1\ncat \"$0.bytes\"\n", &bytes);
    assert_string_equal(health_cause(h), "");
    health_finish(h, true);
    assert_int_equal(told.num_events, 1);
    assert_string_equal(health_cause(h),
                        "GPU 4 of box (rank 1): XID 48: a double-bit memory error; ");
    health_free(h);
    buf_free(&bytes);
}

/* Devices of others, kinds that nobody knows, and more than can be true. */
static void what_is_none_of_its_business_is_left_out(void **state)
{
    (void)state;
    struct buf bytes = {0};
    add_event(&bytes, 0, DEVICE_LOST, 0);
    add_event(&bytes, -1, DEVICE_LOST, 0);
    add_event(&bytes, INT32_MAX, DEVICE_LOST, 0);
    for (int i = 0; i < 1000; i++) {
        add_event(&bytes, 3, DEVICE_SLOWED, 0);
    }
    add_event(&bytes, 3, DEVICE_XID, 95); /* a fault doesn't drown in it */
    struct health *h = start(SAY_AND_STAY, &bytes);
    hear(h, 201, 1);
    health_finish(h, true);
    assert_int_equal(told.num_events, 201);
    assert_int_equal(told.num_notes, 1);
    assert_string_equal(told.event, "XID 95: an uncontained memory error");
    health_free(h);
    buf_free(&bytes);
}

static void nonsense_ends_the_watch_with_a_note(void **state)
{
    (void)state;
    static const char *const cases[] = {"\xff\xff\xff\xff", "\x04\0\0\0abcd", "\x01\0\0\0\xff"};
    static const size_t lens[] = {4, 8, 5};
    for (int i = 0; i < 3; i++) {
        struct buf bytes = {0};
        buf_append(&bytes, cases[i], lens[i]);
        struct health *h = start(SAY_AND_STAY, &bytes);
        hear_out(h);
        assert_int_equal(health_fd(h), -1);
        assert_non_null(strstr(told.note, "says nonsense"));
        assert_int_equal(told.num_notes, i + 1);
        assert_false(health_pins(h)[1].is_pinned);
        health_free(h);
        buf_free(&bytes);
    }
}

static void a_watch_that_is_not_there_or_dies_is_a_note(void **state)
{
    (void)state;
    int status;
    struct health *h = start("#!/nowhere/at-all\n", NULL);
    assert_int_equal(told.num_notes, 1);
    assert_non_null(strstr(told.note, "the health of GPUs isn't looked at: start "));
    health_free(h);
    h = start("#!/bin/sh\nkill -11 $$\n", NULL);
    hear_out(h);
    pid_t pid = waitpid(-1, &status, 0);
    health_gone(h, pid + 1, status); /* not it */
    assert_int_equal(told.num_notes, 1);
    health_gone(h, pid, status);
    assert_int_equal(told.num_notes, 2);
    assert_non_null(strstr(told.note, "tandem-probe ended by signal 11"));
    health_finish(h, true);
    health_free(h);
}

/* The second one finds what the first one died of; for ever it isn't tried. */
static void a_watch_that_dies_is_started_again_some_times(void **state)
{
    (void)state;
    struct buf bytes = {0};
    add_event(&bytes, 4, DEVICE_LOST, 0);
    struct health *h = start(SAY "kill -11 $$\n", &bytes);
    for (int i = 1; i <= 4; i++) {
        int status;
        hear_out(h);
        assert_int_equal(told.num_events, i);
        pid_t pid = waitpid(-1, &status, 0);
        assert_true(pid > 0);
        health_gone(h, pid, status);
        assert_int_equal(told.num_notes, i);
        int64_t until = clock_mono_ms() + 60000;
        while (i < 4 && health_fd(h) < 0) {
            assert_true(clock_mono_ms() < until);
            clock_sleep_ms(1);
            health_tick(h);
        }
    }
    assert_non_null(strstr(told.note, "any more: tandem-probe ended by signal 11"));
    health_tick(h);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    health_finish(h, true);
    health_tick(h);
    health_free(h);
    buf_free(&bytes);
}

/* Neither the start nor the end waits for it longer than it may. */
static void a_watch_that_hangs_is_killed(void **state)
{
    (void)state;
    struct health *h = start("#!/bin/sh\nexec sleep 1000\n", NULL); /* beyond any deadline here */
    assert_true(health_fd(h) >= 0);
    assert_non_null(strstr(health_pins(h)[0].words, "the driver doesn't tell of it"));
    health_finish(h, true);
    assert_int_equal(health_fd(h), -1);
    health_free(h);
    reap_all(); /* none is left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_attempt_on_cpus_has_no_watch, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_heard_is_told_and_is_the_cause_of_a_death, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_word_behind_a_death_is_its_cause, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_none_of_its_business_is_left_out, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(nonsense_ends_the_watch_with_a_note, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_watch_that_is_not_there_or_dies_is_a_note, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_watch_that_dies_is_started_again_some_times, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_watch_that_hangs_is_killed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
