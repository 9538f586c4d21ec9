#include "tests/parallel/store_case_list.h"

#include <stdlib.h>

struct maker {
    const struct store_case *c;
    struct case_list list;
    int32_t micro;
    int32_t next_gather, next_grads; /* whose turn of the two slots it is */
};

static Action *add(struct maker *m, ActionKind kind)
{
    if (m->list.num % 64 == 0) {
        m->list.actions = realloc(m->list.actions, (m->list.num + 64) * sizeof(Action));
        ASSERT(m->list.actions);
    }
    Action *a = &m->list.actions[m->list.num++];
    action__init(a);
    a->kind = kind;
    a->micro_batch = m->micro;
    return a;
}

/* A bucket is a unit: this one's. */
static int32_t bucket_of(const struct maker *m, int32_t unit)
{
    return m->c->num_units - 1 - unit;
}

static bool is_tied_unit(const struct maker *m, int32_t unit)
{
    return unit == 0 && m->c->spec.tied;
}

static void add_gather(struct maker *m, int32_t unit)
{
    Action *a = add(m, ACTION_GATHER);
    a->bucket = bucket_of(m, unit);
    a->slot = is_tied_unit(m, unit) ? 2 : m->next_gather++ % 2;
}

static void add_release(struct maker *m, int32_t unit)
{
    add(m, ACTION_RELEASE)->bucket = bucket_of(m, unit);
}

static void add_pass(struct maker *m, ActionKind kind, int32_t unit)
{
    Action *a = add(m, kind);
    a->unit_begin = unit;
    a->unit_end = unit + 1;
}

static void add_open(struct maker *m, int32_t unit, int32_t slot)
{
    Action *a = add(m, ACTION_OPEN_GRADS);
    a->bucket = bucket_of(m, unit);
    a->slot = slot;
}

static void add_reduces(struct maker *m, int32_t unit)
{
    const struct store_case *c = m->c;
    bool final = m->micro == c->spec.micro_batches - 1;
    if (c->stage < 2 && !final)
        return;
    if (c->spec.tensor > 1)
        add(m, ACTION_REDUCE_PARTIAL)->unit_begin = unit;
    for (int32_t i = 0; i < c->table.num_buckets; i++) {
        if (c->plan_stage.buckets[i]->after_unit != unit)
            continue;
        Action *a = add(m, ACTION_REDUCE_BUCKET);
        a->bucket = i;
        a->final = final;
    }
}

static void add_backward(struct maker *m, int32_t unit)
{
    const struct store_case *c = m->c;
    if (c->stage >= 2 && unit == c->num_units - 1 && c->spec.tied)
        add_open(m, 0, 2);
    if (c->stage >= 2 && !is_tied_unit(m, unit))
        add_open(m, unit, m->next_grads++ % 2);
    add_pass(m, ACTION_BACKWARD, unit);
    add_reduces(m, unit);
}

/* Uses of weights in order: forward 0..U-1, backward U-1..1; the last unit's two follow each other
 * and share a gather. The next use's is put before each one. The embedding's backward pass needs
 * none; a tied one stays from its first use to the head's backward. */
static void add_sharded_passes(struct maker *m)
{
    int32_t num = m->c->num_units;
    bool tied = m->c->spec.tied;
    add_gather(m, 0);
    for (int32_t u = 0; u < num; u++) {
        if (u + 1 < num)
            add_gather(m, u + 1);
        add_pass(m, ACTION_FORWARD, u);
        if (u + 1 < num && !is_tied_unit(m, u))
            add_release(m, u);
    }
    for (int32_t u = num - 1; u >= 0; u--) {
        if (u - 1 >= 1)
            add_gather(m, u - 1);
        add_backward(m, u);
        if (u >= 1)
            add_release(m, u);
        if (u == num - 1 && tied)
            add_release(m, 0);
    }
}

static void add_whole_passes(struct maker *m)
{
    int32_t num = m->c->num_units;
    for (int32_t u = 0; u < num; u++)
        add_pass(m, ACTION_FORWARD, u);
    for (int32_t u = num - 1; u >= 0; u--)
        add_backward(m, u);
}

struct case_list case_list_new(const struct store_case *c)
{
    struct maker m = {.c = c};
    for (; m.micro < c->spec.micro_batches; m.micro++)
        (c->stage == 3 ? add_sharded_passes : add_whole_passes)(&m);
    add(&m, ACTION_REDUCE_LOSS);
    add(&m, ACTION_WAIT_REDUCES);
    add(&m, ACTION_NORM);
    add(&m, ACTION_OPTIMIZER);
    for (int32_t i = c->table.num_buckets - 1; i >= 0 && (c->stage == 1 || c->stage == 2); i--)
        add(&m, ACTION_GATHER)->bucket = i;
    return m.list;
}
