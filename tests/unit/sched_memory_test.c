/* What a pass learnt for the next never changes what is decided: random histories, each pass made
 * with memory and from nothing. TANDEM_SCHED_SEED=7 runs that seed alone. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tests/effort.h"
#include "tests/unit/sched_case.h"

#define MINUTE_MS 60000

static const char cluster[] =
    "groups:\n"
    "  - {name: h, count: 5, devices: 8, type: h100, nodes_per_leaf: 2, mem_bytes: 80000000000}\n"
    "  - {name: g, count: 2, devices: 4, type: gb200, nodes_per_domain: 2}\n"
    "  - {name: c, count: 2, devices: 4, type: cpu}\n";

struct history {
    struct sched_case *c;
    uint64_t seed, draws;
    int64_t next_id;
    const char *pins[3];
};

static uint64_t draw(struct history *h, uint64_t n)
{
    return rng_u64(h->seed, 1, h->draws++) % n;
}

static void submit(struct history *h)
{
    static const char *const types[] = {"any", "any", "h100", "gb200", "cpu"};
    struct sched_case *c = h->c;
    if (c->num_jobs + c->num_runs >= CASE_MAX - 4) {
        return;
    }
    int32_t tensor = 1 << draw(h, 4), data = 1 + (int32_t)draw(h, 3);
    struct sched_job *j = case_job(c, h->next_id++, (int32_t)draw(h, 4), data, tensor);
    j->tenant = (int32_t)draw(h, (uint64_t)c->num_tenants);
    j->place.type = types[draw(h, 5)];
    j->place.gpu_only = draw(h, 4) == 0;
    j->place.one_node = draw(h, 4) == 0;
    j->place.mem_bytes = draw(h, 4) == 0 ? (int64_t)draw(h, 100000000000) : 0;
    j->limit_ms = draw(h, 2) ? (int64_t)draw(h, 60 * MINUTE_MS) : 0;
    j->ready = draw(h, 8) != 0;
    if (draw(h, 4) == 0) {
        j->place.num_nodes = 1 + draw(h, 2);
        j->place.nodes = &h->pins[draw(h, 2)];
    }
}

static struct sched_job *any_job(struct history *h)
{
    return h->c->num_jobs ? &h->c->jobs[draw(h, h->c->num_jobs)] : NULL;
}

static struct sched_run *any_run(struct history *h)
{
    return h->c->num_runs ? &h->c->runs[draw(h, h->c->num_runs)] : NULL;
}

static void change_run(struct history *h, struct sched_run *r)
{
    switch (draw(h, 6)) {
    case 0:
        r->stopping = true;
        break;
    case 1:
        r->is_stuck = draw(h, 4) == 0;
        break;
    case 2:
        r->end_ms = h->c->now_ms + (int64_t)draw(h, 60 * MINUTE_MS);
        break;
    default:
        if (!r->is_stuck) {
            case_gone(h->c, r->id, r->yields_to != 0 || draw(h, 4) == 0);
        }
    }
}

static void change_something(struct history *h)
{
    struct sched_case *c = h->c;
    struct sched_job *j = any_job(h);
    struct sched_run *r = any_run(h);
    int32_t tenant = (int32_t)draw(h, (uint64_t)c->num_tenants);
    switch (draw(h, 10)) {
    case 0:
        c->drained[draw(h, (uint64_t)c->f->num_devices)] = draw(h, 3) == 0;
        break;
    case 1:
        c->tenants[tenant].quota = (int64_t)draw(h, 40) - 1;
        break;
    case 2:
        c->tenants[tenant].max = draw(h, 2) ? (int64_t)draw(h, 40) : -1;
        break;
    case 3:
        c->options.preemption = draw(h, 4) != 0;
        c->options.backfill = draw(h, 4) != 0;
        break;
    case 4:
        if (j) {
            j->priority = (int32_t)draw(h, 6);
            j->ready = draw(h, 4) != 0;
        }
        break;
    case 5:
    case 6:
        submit(h);
        break;
    default:
        if (r) {
            change_run(h, r);
        }
    }
}

static void compare_decisions(const struct history *h, const struct sched_decision *a,
                              const struct sched_decision *b, size_t num)
{
    for (size_t i = 0; i < num; i++) {
        assert_int_equal(a[i].kind, b[i].kind);
        assert_int_equal(a[i].job, b[i].job);
        assert_int_equal(a[i].run, b[i].run);
        assert_int_equal(a[i].backfills, b[i].backfills);
        assert_int_equal(a[i].borrowed, b[i].borrowed);
        assert_true(device_set_equal(a[i].set, b[i].set));
        if (a[i].kind == SCHED_START) {
            size_t bytes = (size_t)h->c->jobs[a[i].job].num_devices * sizeof *a[i].devices;
            assert_memory_equal(a[i].devices, b[i].devices, bytes);
        }
    }
}

static void check_pass(struct history *h)
{
    struct sched *fresh;
    const struct sched_decision *decisions;
    assert_int_equal(sched_new(&fresh, h->c->f, NULL), 0);
    struct sched_view v = case_view(h->c);
    size_t num = sched_pass(fresh, &v, &decisions);
    case_pass(h->c);
    assert_int_equal(h->c->num_decisions, num);
    compare_decisions(h, h->c->decisions, decisions, num);
    assert_true(sched_next_ms(fresh) == sched_next_ms(h->c->s));
    for (size_t i = 0; i < h->c->num_jobs; i++) {
        struct sched_reason a, b;
        sched_explain(fresh, &v, i, &a);
        sched_explain(h->c->s, &v, i, &b);
        assert_string_equal(a.words, b.words);
        assert_true(a.words[0] != 0);
    }
    sched_free(fresh);
}

static void run_history(uint64_t seed)
{
    struct history h = {.c = case_new_of(cluster), .seed = seed, .next_id = 1};
    struct sched_case *c = h.c;
    print_message("seed %" PRIu64 "\n", seed);
    for (int i = 0; i < 3; i++) {
        h.pins[i] = c->f->nodes[draw(&h, (uint64_t)c->f->num_nodes)].name;
    }
    case_tenant(c, "a", 12, -1);
    case_tenant(c, "b", 8, 24);
    c->options.fair_share = 2;
    c->options.aging_per_h = 1;
    c->options.aging_max = 3;
    for (int step = 0; step < 150; step++) {
        change_something(&h);
        c->now_ms += (int64_t)draw(&h, 2 * MINUTE_MS);
        check_pass(&h);
        if (draw(&h, 4) != 0) {
            case_apply(c);
        }
    }
    case_free(c);
}

static void memory_changes_no_decision(void **state)
{
    (void)state;
    const char *one = getenv("TANDEM_SCHED_SEED");
    if (one) {
        run_history(strtoull(one, NULL, 10));
        return;
    }
    for (int seed = 1; seed <= effort(2000, 60, 10); seed++) {
        run_history((uint64_t)seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_changes_no_decision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
