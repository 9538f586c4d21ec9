/* The proof of a plan: it passes what plan_build makes of any layout that can run, and refuses what
 * is changed in one place. TANDEM_PROOF_SEED draws other layouts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "plan/layout_rules.h"
#include "plan/params.h"
#include "plan/proof.h"
#include "plan/schedule.h"
#include "plan_case.h"

static struct plan_case *c;
static uint64_t draws;
static const struct spec_unbuilt nothing;

static int setup(void **state)
{
    (void)state;
    c = plan_case_new();
    c->input.unbuilt = &nothing; /* families that can't be trained yet are planned all the same */
    c->layout.has_bucket_mb = 1;
    plan_case_cluster(c, 1, 64, 64, 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    plan_case_free(c);
    return 0;
}

static uint64_t seed(void)
{
    const char *word = getenv("TANDEM_PROOF_SEED");
    return word ? strtoull(word, NULL, 10) : 20241130;
}

static int64_t draw(int64_t num)
{
    return (int64_t)(rng_u64(seed(), 1, draws++) % (uint64_t)num);
}

static int64_t divisor(int64_t of)
{
    int64_t d;
    do {
        d = 1 + draw(of);
    } while (of % d != 0);
    return d;
}

/* A small model of some family, and some layout of it. */
static Plan *draw_plan(void)
{
    static const char *const families[] = {"llama", "qwen2", "qwen3", "gpt2"};
    static const struct {
        int64_t heads, kv, ffn;
    } shapes[] = {{8, 4, 136}, {6, 3, 90}, {8, 2, 64}, {4, 1, 48}, {6, 6, 36}};
    static const double sizes_mb[] = {0.0005, 0.005, 0.05, 25};
    int64_t family = draw(4), shape = draw(5), kv = shapes[shape].kv;
    c->config.model_type = (char *)families[family];
    c->config.tie_word_embeddings = family == 3 || draw(2);
    plan_case_config(c, 1 + draw(5), shapes[shape].heads * 4, shapes[shape].ffn,
                     shapes[shape].heads, family == 3 ? shapes[shape].heads : kv, 256 + draw(90));
    ParallelSpec *l = &c->layout;
    l->data = 1 + draw(8);
    l->tensor = 1 + draw(8);
    l->zero_stage = draw(4);
    l->shard_size = l->zero_stage > 0 && draw(2) ? divisor(l->data) : 0;
    l->sequence_parallel = draw(2) != 0;
    l->bucket_mb = sizes_mb[draw(4)];
    int64_t micro_batches = draw(12) ? 1 + draw(8) : 1 + draw(300);
    c->training.micro_batch_size = 1 + draw(3);
    c->training.global_batch_size = l->data * micro_batches * c->training.micro_batch_size;
    c->source.format = (char *)(draw(3) ? "u16" : "tokenized-jsonl");
    c->data_facts.has_num_rows = c->data_facts.has_longest_row = 1;
    c->data_facts.num_rows = 220;
    c->data_facts.longest_row = 12;
    Plan *plan = NULL;
    struct error err = {0};
    if (layout_rules_check_model(&c->spec, &c->config, &err) != 0) {
        return NULL; /* tensor doesn't divide the heads */
    }
    if (plan_build(&c->input, &plan, &err) != 0) {
        fail_msg("%s: data %lld tensor %lld zero_stage %lld: %s", families[family],
                 (long long)l->data, (long long)l->tensor, (long long)l->zero_stage, err.text);
    }
    return plan;
}

/* ---- good plans ---- */

/* [2] Every layout that the runtime can walk through is proved before it starts. */
static void every_layout_is_proved(void **state)
{
    (void)state;
    int proved = 0;
    draws = 0;
    while (proved < 2500) {
        Plan *plan = draw_plan();
        struct error err = {0};
        if (!plan) {
            continue;
        }
        if (plan_prove(plan, &err) != 0) {
            fail_msg("%s", err.text);
        }
        proved++;
        plan__free_unpacked(plan, NULL);
    }
}

/* The list doesn't grow with the micro-batches; the walk does. */
static void a_list_holds_each_kind_of_micro_batch_once(void **state)
{
    (void)state;
    c->layout.data = 2;
    c->layout.zero_stage = 3;
    size_t actions[2];
    for (int i = 0; i < 2; i++) {
        int64_t m = i == 0 ? 4 : SCHEDULE_MAX_MICRO_BATCHES;
        c->training.global_batch_size = 2 * m;
        Plan *plan = plan_case_build(c);
        struct schedule_walk w = {.stage = plan->stages[0]};
        int64_t forward = 0, next = 0, final = 0;
        for (Action a; schedule_next(&w, &a);) {
            assert_int_not_equal(a.kind, ACTION_REPEAT);
            if (a.kind == ACTION_FORWARD && a.unit_begin == 0) {
                assert_int_equal(a.micro_batch, next++);
            }
            forward += a.kind == ACTION_FORWARD ? a.unit_end - a.unit_begin : 0;
            final += a.kind == ACTION_REDUCE_BUCKET && a.final;
        }
        assert_int_equal(next, m);
        assert_int_equal(forward, m * 4);
        assert_int_equal(final, plan->stages[0]->n_buckets);
        actions[i] = plan->stages[0]->n_actions;
        plan__free_unpacked(plan, NULL);
    }
    assert_int_equal(actions[0], actions[1]);
}

/* A step's longest list is small beside the plan's bound: 405B, ZeRO-3, any number of them. */
static void the_longest_list_fits_the_plan(void **state)
{
    (void)state;
    plan_case_config(c, 126, 16384, 53248, 128, 8, 128256);
    c->config.max_position_embeddings = 131072;
    c->layout.data = 8;
    c->layout.tensor = 8;
    c->layout.sequence_parallel = 1;
    c->layout.zero_stage = 3;
    c->training.global_batch_size = 8 * 16384;
    Plan *plan = plan_case_build(c);
    assert_true(plan__get_packed_size(plan) < 128 * 1024);
    plan__free_unpacked(plan, NULL);
}

/* ---- one change ---- */

static bool proves(const Plan *plan)
{
    struct error err = {0};
    return plan_prove(plan, &err) == 0;
}

static void complain(const Plan *plan, size_t i, const char *change)
{
    const Stage *s = plan->stages[0];
    const ParallelSpec *l = plan->spec->parallel->layout;
    for (size_t k = i > 3 ? i - 3 : 0; k < i + 4 && k < s->n_actions; k++) {
        const Action *a = s->actions[k];
        printf("%zu: kind %d micro %d units %d:%d bucket %d slot %d final %d\n", k, (int)a->kind,
               a->micro_batch, a->unit_begin, a->unit_end, a->bucket, a->slot, a->final);
    }
    fail_msg("accepted: %s at action %zu; zero_stage %lld data %lld tensor %lld", change, i,
             (long long)l->zero_stage, (long long)l->data, (long long)l->tensor);
}

static void remove_at(Stage *s, size_t i)
{
    memmove(&s->actions[i], &s->actions[i + 1], (s->n_actions - i - 1) * sizeof *s->actions);
    s->n_actions--;
}

static void insert_at(Stage *s, size_t i, Action *a)
{
    memmove(&s->actions[i + 1], &s->actions[i], (s->n_actions - i) * sizeof *s->actions);
    s->actions[i] = a;
    s->n_actions++;
}

static bool in(ActionKind kind, ActionKind a, ActionKind b, ActionKind d)
{
    return kind == a || kind == b || kind == d;
}

static bool runs_units(const Action *a)
{
    return a->kind == ACTION_FORWARD || a->kind == ACTION_BACKWARD;
}

static bool is_barrier(const Action *a)
{
    return in(a->kind, ACTION_WAIT_REDUCES, ACTION_NORM, ACTION_OPTIMIZER) ||
           in(a->kind, ACTION_COUNT_TARGETS, ACTION_REPEAT, ACTION_NORM);
}

static bool of_unit(const struct param_table *t, const Action *a, int32_t unit, int32_t bucket)
{
    if (a->kind == ACTION_REDUCE_PARTIAL) {
        return a->unit_begin == unit;
    }
    for (int32_t i = 0; bucket >= 0 && i < t->num_params; i++) {
        if (t->params[i].bucket == bucket && t->params[i].unit == unit) {
            return true;
        }
    }
    return false;
}

/* May a and b, one right behind the other, change places without any change in what is computed?
 * Told by what they touch: units and barriers keep their order; so do the things that happen to
 * one bucket or slot. */
static bool commute(const Stage *s, const struct param_table *t, const Action *a, const Action *b)
{
    if (is_barrier(a) || is_barrier(b)) {
        return false;
    }
    if (runs_units(b)) {
        const Action *swapped = a;
        a = b;
        b = swapped;
    }
    if (runs_units(a)) {
        if (runs_units(b)) {
            return false;
        }
        if (b->kind == ACTION_REDUCE_LOSS) {
            return a->kind == ACTION_BACKWARD;
        }
        bool of_grads = in(b->kind, ACTION_OPEN_GRADS, ACTION_REDUCE_BUCKET, ACTION_REDUCE_PARTIAL);
        if (of_grads && a->kind == ACTION_FORWARD) {
            return true;
        }
        bool tied = a->unit_end == t->params[0].unit + 1 && t->params[t->num_params - 1].tied;
        for (int32_t u = a->unit_begin; u < a->unit_end; u++) {
            if (of_unit(t, b, u, b->kind == ACTION_REDUCE_PARTIAL ? -1 : b->bucket)) {
                /* No weights are needed to run an embedding backward. */
                return u == 0 && a->kind == ACTION_BACKWARD && !of_grads && !tied;
            }
        }
        return !tied || !of_unit(t, b, 0, b->bucket);
    }
    if (a->kind == ACTION_REDUCE_PARTIAL || b->kind == ACTION_REDUCE_PARTIAL) {
        const Action *other = a->kind == ACTION_REDUCE_PARTIAL ? b : a;
        const Action *partial = other == a ? b : a;
        return other->kind != ACTION_REDUCE_BUCKET ||
               !of_unit(t, other, partial->unit_begin, other->bucket);
    }
    if (a->kind == ACTION_REDUCE_LOSS || b->kind == ACTION_REDUCE_LOSS) {
        return true;
    }
    bool weights_a = in(a->kind, ACTION_GATHER, ACTION_RELEASE, ACTION_GATHER);
    bool weights_b = in(b->kind, ACTION_GATHER, ACTION_RELEASE, ACTION_GATHER);
    if (weights_a != weights_b) {
        return true;
    }
    if (a->bucket == b->bucket) {
        return false;
    }
    /* One leaves the slot that the other comes into; where it was is told by what comes. */
    bool first_leaves = a->kind == ACTION_RELEASE || a->kind == ACTION_REDUCE_BUCKET;
    bool second_comes = b->kind == ACTION_GATHER || b->kind == ACTION_OPEN_GRADS;
    return !(first_leaves && second_comes) || b->slot < 0 || s->n_grad_slots == 0 ||
           b->slot != (a->bucket == (int32_t)s->n_buckets - 1 && t->params[t->num_params - 1].tied
                           ? 2
                           : ((int32_t)s->n_buckets - 1 - a->bucket) % 2);
}

static void change_list(Plan *plan, const struct param_table *t, size_t i)
{
    Stage *s = plan->stages[0];
    Action *a = s->actions[i], kept = *a;
    remove_at(s, i);
    if (proves(plan)) {
        complain(plan, i, "dropped");
    }
    insert_at(s, i, a);
    insert_at(s, i, a);
    if (proves(plan)) {
        complain(plan, i, "twice");
    }
    remove_at(s, i);
    if (i + 1 < s->n_actions) {
        Action *b = s->actions[i + 1];
        s->actions[i] = b;
        s->actions[i + 1] = a;
        if (proves(plan) && !commute(s, t, a, b)) {
            complain(plan, i, "swapped");
        }
        s->actions[i] = a;
        s->actions[i + 1] = b;
    }
    a->final = !a->final;
    if (a->kind == ACTION_REDUCE_BUCKET && proves(plan)) {
        complain(plan, i, "final");
    }
    *a = kept;
    a->micro_batch += draw(2) ? 1 : -1;
    if (runs_units(a) && proves(plan)) {
        complain(plan, i, "another micro-batch");
    }
    *a = kept;
    *(draw(2) ? &a->unit_begin : &a->unit_end) += draw(2) ? 1 : -1;
    if (runs_units(a) && proves(plan)) {
        complain(plan, i, "other units");
    }
    *a = kept;
    a->bucket += draw(2) ? 1 : -1;
    bool has_bucket = in(a->kind, ACTION_GATHER, ACTION_RELEASE, ACTION_OPEN_GRADS) ||
                      a->kind == ACTION_REDUCE_BUCKET;
    if (has_bucket && proves(plan)) {
        complain(plan, i, "another bucket");
    }
    *a = kept;
    a->kind = (ActionKind)draw(14);
    if (a->kind != kept.kind && proves(plan)) {
        complain(plan, i, "another kind");
    }
    *a = kept;
    *(draw(2) ? &a->length : &a->times) += draw(2) ? 1 : -1;
    if (a->kind == ACTION_REPEAT && proves(plan)) {
        complain(plan, i, "another repeat");
    }
    *a = kept;
}

/* Another slot that is free and large enough computes the same, only with less overlap: that of
 * gradients whose sum has begun, or a tied embedding's after its last use. All others are refused.
 */
static void change_slot(Plan *plan, size_t i, int *accepted, int *tried)
{
    Stage *s = plan->stages[0];
    Action *a = s->actions[i], kept = *a;
    if (a->kind != ACTION_GATHER && a->kind != ACTION_OPEN_GRADS) {
        return;
    }
    a->slot = (int32_t)draw(5) - 1;
    if (a->slot != kept.slot) {
        (*tried)++;
        if (proves(plan)) {
            (*accepted)++;
            assert_true(a->slot >= 0);
            assert_true(a->kind == ACTION_OPEN_GRADS || a->slot == 2);
        }
    }
    *a = kept;
}

/* [2] A list that differs from a good one in one place computes something else, and is refused,
 * but for neighbours that don't depend on each other. */
static void a_list_with_one_change_is_refused(void **state)
{
    (void)state;
    int accepted = 0, tried = 0, changed = 0;
    draws = 1 << 20;
    while (changed < 4000) {
        Plan *plan = draw_plan();
        if (!plan) {
            continue;
        }
        Stage *s = plan->stages[0];
        struct param_table t;
        assert_int_equal(params_expand(plan, 0, &t, NULL), 0);
        s->actions = realloc(s->actions, (s->n_actions + 2) * sizeof *s->actions);
        assert_non_null(s->actions);
        for (int k = 0; k < 20; k++, changed++) {
            size_t i = (size_t)draw((int64_t)s->n_actions);
            change_list(plan, &t, i);
            change_slot(plan, (size_t)draw((int64_t)s->n_actions), &accepted, &tried);
        }
        assert_true(proves(plan));
        params_free(&t);
        plan__free_unpacked(plan, NULL);
    }
    printf("slots: %d of %d changes accepted\n", accepted, tried);
}

static void refuse_with(Plan *plan, int64_t *field, int64_t by, const char *name)
{
    int64_t kept = *field;
    *field += by;
    if (proves(plan)) {
        fail_msg("accepted: %s", name);
    }
    *field = kept;
}

static void change_tags(Plan *plan)
{
    ParamDef *d = plan->params[draw((int64_t)plan->n_params)], kept = *d;
    d->tensor_grad = (Spread)((d->tensor_grad + 1 + draw(2)) % 3);
    assert_false(proves(plan));
    *d = kept;
    d->tensor_spread = (Spread)((d->tensor_spread + 1 + draw(2)) % 3);
    assert_false(proves(plan));
    *d = kept;
    d->on_rows = !d->on_rows;
    assert_false(proves(plan));
    *d = kept;
    d->role = (ParamRole)((d->role + 1 + draw(29)) % 31);
    assert_false(d->role != kept.role && proves(plan));
    *d = kept;
    d->tied = !d->tied;
    assert_false(proves(plan));
    *d = kept;
    refuse_with(plan, &d->shape[draw((int64_t)d->n_shape)], 1, "shape");
    if (d->tensor_spread == SPREAD_SHARD) {
        refuse_with(plan, &d->shard_parts, 1, "shard_parts");
        refuse_with(plan, &d->shard_groups, 1, "shard_groups");
    }
}

static void change_buckets(Plan *plan)
{
    Stage *s = plan->stages[0];
    Bucket *b = s->buckets[draw((int64_t)s->n_buckets)], kept = *b;
    refuse_with(plan, &b->offset, PARAMS_ALIGN_NUMEL, "offset");
    refuse_with(plan, &b->numel, PARAMS_ALIGN_NUMEL, "numel");
    refuse_with(plan, &b->numel, -PARAMS_ALIGN_NUMEL, "numel");
    refuse_with(plan, &s->flat_numel, PARAMS_ALIGN_NUMEL, "flat_numel");
    b->first_param++;
    assert_false(proves(plan));
    *b = kept;
    b->num_params++;
    assert_false(proves(plan));
    *b = kept;
    b->after_unit++;
    assert_false(proves(plan));
    *b = kept;
    for (size_t i = 0; i < s->n_weight_slots; i++) {
        refuse_with(plan, &s->weight_slots[i], -PARAMS_ALIGN_NUMEL, "weight slot");
    }
    for (size_t i = 0; i < s->n_grad_slots; i++) {
        refuse_with(plan, &s->grad_slots[i], -PARAMS_ALIGN_NUMEL, "gradient slot");
    }
}

/* [2] So is a plan whose table, buckets, slots, mesh or batch differ. */
static void a_plan_with_one_change_is_refused(void **state)
{
    (void)state;
    draws = 2 << 20;
    for (int planned = 0; planned < 300;) {
        Plan *plan = draw_plan();
        if (!plan) {
            continue;
        }
        planned++;
        change_tags(plan);
        change_buckets(plan);
        refuse_with(plan, &plan->mesh->data, 1, "data");
        refuse_with(plan, &plan->mesh->tensor, 1, "tensor");
        refuse_with(plan, &plan->mesh->num_ranks, 1, "ranks");
        refuse_with(plan, &plan->micro_batches, 1, "micro_batches");
        refuse_with(plan, &plan->model->config->num_hidden_layers, 1, "layers");
        assert_true(proves(plan));
        plan__free_unpacked(plan, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_layout_is_proved, setup, teardown),
        cmocka_unit_test_setup_teardown(a_list_holds_each_kind_of_micro_batch_once, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_longest_list_fits_the_plan, setup, teardown),
        cmocka_unit_test_setup_teardown(a_list_with_one_change_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_plan_with_one_change_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
