/* The page of `tandem top`, line by line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "clients/cli/top.h"
#include "proto/text.h"

/* 2026-03-01 14:03:12 UTC */
#define NOW_US ((int64_t)1772373792 * 1000000)

static void *message(const char *text, const ProtobufCMessageDescriptor *what)
{
    ProtobufCMessage *m;
    struct error err = {0};
    if (text_parse("test", text, strlen(text), what, &m, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return m;
}

static void compare(const struct top_view *v, size_t width, const char *expected)
{
    struct buf out = {0};
    const struct table_look look = {.width = width};
    top_write(v, &look, &out);
    assert_string_equal(out.data, expected);
    buf_free(&out);
}

static const char usage_text[] =
    "num_devices: 16\nnum_drained: 1\nnum_used: 12\nnum_free: 3\nnum_queued: 7\nusage:\n"
    "  - {tenant: blue, devices_in_use: 4, devices_borrowed: 0, num_queued: 7,\n"
    "     quota: {devices: 8, max_devices: 12, weight: 1}}\n"
    "  - {tenant: idle, devices_in_use: 0, num_queued: 0}\n"
    "  - {tenant: red, devices_in_use: 8, devices_borrowed: 4, num_queued: 0,\n"
    "     quota: {devices: 4, max_devices: -1, weight: 1}}\n";

/* Who has and who wants nothing isn't listed; borrowed devices are marked; what isn't shown is
 * counted. */
static void the_page_has_cluster_tenants_runs_and_queue(void **state)
{
    (void)state;
    GetUsageReply *usage = message(usage_text, &get_usage_reply__descriptor);
    Job *runs = message("id: 1\nname: small\ntenant: red\nstate: JOB_RUNNING\ndevices: 8\n"
                        "borrowed: true\nstep: 412\ntotal_steps: 600\nloss: 1.3333\n"
                        "tokens_per_s: 2670\nmfu: 0.094\neta_s: 72\n",
                        &job__descriptor);
    Job *waits = message("id: 3\nname: later\ntenant: blue\nstate: JOB_QUEUED\ndevices: 8\n"
                         "priority: 500\nwait_s: 130\n",
                         &job__descriptor);
    WhyReply *why = message("reasons: [\"needs 8 devices; 3 are free\", more]\nplace: 1\n",
                            &why_reply__descriptor);
    const WhyReply *whys[] = {why};
    const struct top_view v = {.usage = usage,
                               .running = &runs,
                               .num_running = 1,
                               .all_running = 3,
                               .queued = &waits,
                               .num_queued = 1,
                               .why = whys,
                               .now_us = NOW_US};
    compare(&v, 0,
            "14:03:12  16 devices: 12 in use, 3 free, 1 drained; 3 running, 7 queued\n"
            "\n"
            "TENANT  IN_USE  QUOTA  MAX  BORROWED  QUEUED\n"
            "blue         4      8   12         0       7\n"
            "red          8      4    -         4       0\n"
            "\n"
            "ID  NAME   TENANT  STATE    DEVICES     STEP    LOSS  TOKENS_PER_S   MFU   LEFT\n"
            " 1  small  red     RUNNING       8b  412/600  1.3333         2.67k  9.4%  1m12s\n"
            "and 2 more\n"
            "\n"
            "PLACE  ID  NAME   TENANT  DEVICES  PRIORITY  WAITS  WHY\n"
            "    1   3  later  blue          8       500  2m10s  needs 8 devices; 3 are free\n"
            "and 6 more\n");
    get_usage_reply__free_unpacked(usage, NULL);
    job__free_unpacked(runs, NULL);
    job__free_unpacked(waits, NULL);
    why_reply__free_unpacked(why, NULL);
}

/* A member sees its tenant, even where that has nothing, and no totals. */
static void a_member_sees_its_tenant_only(void **state)
{
    (void)state;
    GetUsageReply *usage = message("num_devices: 4\nnum_queued: 0\nusage:\n"
                                   "  - {tenant: red, devices_in_use: 0, num_queued: 0}\n",
                                   &get_usage_reply__descriptor);
    const struct top_view v = {.usage = usage, .now_us = NOW_US};
    compare(&v, 80,
            "14:03:12  4 devices; 0 running, 0 queued\n"
            "\n"
            "TENANT  IN_USE  QUOTA  MAX  BORROWED  QUEUED\n"
            "red          0      -    -         0       0\n");
    get_usage_reply__free_unpacked(usage, NULL);
}

/* The first that starts is the first on the page; who has no place stands behind. */
static void the_queue_is_in_the_order_of_places(void **state)
{
    (void)state;
    Job jobs[] = {JOB__INIT, JOB__INIT, JOB__INIT, JOB__INIT};
    WhyReply why[] = {WHY_REPLY__INIT, WHY_REPLY__INIT, WHY_REPLY__INIT};
    Job *queued[] = {&jobs[0], &jobs[1], &jobs[2], &jobs[3]};
    const WhyReply *whys[] = {&why[0], NULL, &why[1], &why[2]};
    why[0].place = 2;
    why[2].place = 1;
    top_sort_queue(queued, whys, 4);
    const Job *in_order[] = {&jobs[3], &jobs[0], &jobs[1], &jobs[2]};
    for (size_t i = 0; i < 4; i++) {
        assert_ptr_equal(queued[i], in_order[i]);
    }
    assert_ptr_equal(whys[0], &why[2]);
    top_sort_queue(queued, whys, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_has_cluster_tenants_runs_and_queue),
        cmocka_unit_test(a_member_sees_its_tenant_only),
        cmocka_unit_test(the_queue_is_in_the_order_of_places),
    };
    setenv("TZ", "UTC", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
