/* [20] Who gives way first: a table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/sched_case.h"

#define MINUTE_MS 60000

/* One node of 8 a run; tenants: 0 and 1 of the pool, 2 owns 8, 3 owns none (all is borrowed). */
struct row {
    int64_t id;
    int32_t tenant, priority;
    int64_t lost_ms;
    int64_t age_ms;
    int32_t num; /* devices; 0 = 8 */
    int32_t evictions;
    bool cannot, stopping, stuck;
    int64_t yields_to, backfills;
};

struct table {
    const char *says;
    int32_t tenant, priority, num; /* of job 100; num 0 = 8 */
    struct row rows[8];
    int64_t order[9]; /* ids, best victim first; 0 ends it */
};

static const struct table tables[] = {
    {"the lowest priority goes first", .priority = 10,
     .rows = {{1, .priority = 5}, {2, .priority = -3}, {3, .priority = 9}}, .order = {2, 1, 3}},
    {"of equal priority the one that loses least since its checkpoint", .priority = 10,
     .rows = {{1, .lost_ms = 900}, {2, .lost_ms = 100}, {3, .lost_ms = 500}}, .order = {2, 3, 1}},
    {"what it loses is time times devices", .priority = 10,
     .rows = {{1, .lost_ms = 300, .num = 8}, {2, .lost_ms = 1000, .num = 2}}, .order = {2, 1}},
    {"a low priority counts for more than much that is lost", .priority = 10,
     .rows = {{1, .priority = 1, .lost_ms = 0}, {2, .priority = 0, .lost_ms = INT64_MAX}},
     .order = {2, 1}},
    {"what is lost is the largest number at most, and never less than nothing", .priority = 10,
     .rows = {{1, .lost_ms = INT64_MAX, .age_ms = 9 * MINUTE_MS},
              {2, .lost_ms = INT64_MAX / 2, .age_ms = 8 * MINUTE_MS},
              {3, .lost_ms = INT64_MIN}},
     .order = {3, 2, 1}},
    {"of those that lose the same the youngest, then the newer job", .priority = 10,
     .rows = {{1, .age_ms = 9 * MINUTE_MS},
              {2, .age_ms = 3 * MINUTE_MS},
              {3, .age_ms = 3 * MINUTE_MS}},
     .order = {3, 2, 1}},
    {"nobody of the same or higher priority", .priority = 5,
     .rows = {{1, .priority = 5}, {2, .priority = 6}, {3, .priority = 4}}, .order = {3}},
    {"the pool is one, whatever the tenant", .priority = 5,
     .rows = {{1, .tenant = 1, .priority = 1}, {2, .tenant = 0, .priority = 2}}, .order = {1, 2}},
    {"borrowed ones go before lower priorities", .priority = 10,
     .rows = {{1, .priority = 0}, {2, .tenant = 3, .priority = 8}, {3, .tenant = 3, .priority = 7}},
     .order = {3, 2, 1}},
    {"borrowed ones of the same priority stay, unless a quota is taken back", .priority = 5,
     .rows = {{1, .tenant = 3, .priority = 5}, {2, .tenant = 3, .priority = 4}}, .order = {2}},
    {"for a quota, borrowed ones of any priority go, then the pool", .tenant = 2, .priority = 0,
     .rows = {{1, .tenant = 0, .priority = -5},
              {2, .tenant = 3, .priority = 90},
              {3, .tenant = 1, .priority = 50},
              {4, .tenant = 3, .priority = 80}},
     .order = {4, 2, 1, 3}},
    {"beyond its quota a job takes back nothing", .tenant = 2, .priority = 0, .num = 16,
     .rows = {{1, .tenant = 0, .priority = 0}, {2, .tenant = 3, .priority = 90}}, .order = {0}},
    {"of another tenant never what is within its quota", .priority = 1000,
     .rows = {{1, .tenant = 2, .priority = 0}, {2, .tenant = 2, .priority = -1}}, .order = {2}},
    {"of its own tenant lower priorities, its quota or not", .tenant = 2, .priority = 10,
     .rows = {{1, .tenant = 2, .priority = 0}, {2, .tenant = 2, .priority = 10}}, .order = {1}},
    {"those backfilled in front of it go first, whatever their priority or quota", .priority = 10,
     .rows = {{1, .tenant = 3, .priority = 1},
              {2, .tenant = 2, .priority = 99, .backfills = 100},
              {3, .priority = 50, .backfills = 100},
              {4, .priority = 50, .backfills = 99}},
     .order = {3, 2, 1}},
    {"nobody who can't stop, stops already, or is stuck", .priority = 10,
     .rows = {{1, .cannot = true},
              {2, .stopping = true},
              {3, .yields_to = 77},
              {4, .stuck = true},
              {5, .backfills = 100, .cannot = true}},
     .order = {0}},
    {"nobody a fourth time", /* [17] */
     .priority = 10,
     .rows = {{1, .evictions = 3}, {2, .evictions = 2}, {3, .evictions = 3, .backfills = 100}},
     .order = {2}},
    {"nobody who has hardly begun", .priority = 10,
     .rows = {{1, .age_ms = MINUTE_MS - 1}, {2, .age_ms = MINUTE_MS}, {3, .age_ms = -5}},
     .order = {2}},
};

static void fill(struct sched_case *c, const struct table *t)
{
    case_tenant(c, "other", -1, -1);
    case_tenant(c, "owner", 8, -1);
    case_tenant(c, "borrower", 0, -1);
    for (int32_t i = 0; i < 8 && t->rows[i].id; i++) {
        const struct row *row = &t->rows[i];
        struct sched_run *r = case_run(c, row->id, row->priority, i * 8, row->num ? row->num : 8);
        r->tenant = row->tenant;
        r->lost_ms = row->lost_ms;
        r->started_ms = c->now_ms - (row->age_ms ? row->age_ms : 10 * MINUTE_MS);
        r->evictions = row->evictions;
        r->can_stop = !row->cannot;
        r->stopping = row->stopping;
        r->is_stuck = row->stuck;
        r->yields_to = row->yields_to;
        r->backfills = row->backfills;
    }
    case_job(c, 100, t->priority, t->num ? t->num / 8 : 1, 8)->tenant = t->tenant;
}

static void victims_come_in_the_order_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        const struct table *t = &tables[i];
        struct sched_case *c = case_new(8);
        fill(c, t);
        struct sched_view v = case_view(c);
        size_t runs[8], num = sched_victims(&v, 0, runs);
        size_t want = 0;
        while (t->order[want]) {
            want++;
        }
        if (num != want) {
            fail_msg("%s: %zu victims, not %zu", t->says, num, want);
        }
        for (size_t k = 0; k < num; k++) {
            if (c->runs[runs[k]].id != t->order[k]) {
                fail_msg("%s: victim %zu is %lld, not %lld", t->says, k + 1,
                         (long long)c->runs[runs[k]].id, (long long)t->order[k]);
            }
        }
        case_free(c);
    }
}

static void runs_on_devices_of_no_use_are_no_victims(void **state)
{
    (void)state;
    struct sched_case *c = case_new_of("nodes:\n"
                                       "  - {name: a, devices: [{type: h100}, {type: h100}]}\n"
                                       "  - {name: b, devices: [{type: a100}, {type: a100}]}\n");
    case_run(c, 1, 0, 0, 2);
    case_run(c, 2, 0, 2, 2);
    case_job(c, 3, 5, 2, 1)->place.type = "a100";
    struct sched_view v = case_view(c);
    size_t runs[2];
    assert_int_equal(sched_victims(&v, 0, runs), 1);
    int32_t victim = c->runs[runs[0]].devices->device[0];
    assert_string_equal(c->f->types[c->f->devices[victim].type].name, "a100");
    case_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(victims_come_in_the_order_of_the_table),
        cmocka_unit_test(runs_on_devices_of_no_use_are_no_victims),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
