#include "record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include "rounding.h"
#include "runtime/optim/optimizer.h"
#include "runtime/parallel/store.h"

static struct whole_part part_of(const struct record *r, int32_t rank,
                                 const struct param_table *table, const struct axes *axes,
                                 const struct store *store, enum store_part which)
{
    struct store_view view = store_view(store, which);
    bool fp64 = strcmp(r->plan->spec->training->precision, "fp64") == 0;
    enum dtype wide = fp64 ? DTYPE_F64 : DTYPE_F32;
    ASSERT(view.data != NULL);
    return (struct whole_part){
        .table = table,
        .dtype = which == STORE_WEIGHTS && r->masters ? DTYPE_BF16 : wide,
        .tensor_size = r->plan->mesh->tensor,
        .tensor_idx = axes->coord.tensor,
        .data = view.data,
        .ranges = view.ranges,
        .num_ranges = view.num_ranges,
        .rank = rank,
    };
}

static void take(const struct record *r, struct whole *w, int32_t rank,
                 const struct param_table *table, const struct axes *axes,
                 const struct store *store, enum store_part which)
{
    struct whole_part part = part_of(r, rank, table, axes, store, which);
    part.owned = store_owned(store, &part.num_owned);
    part.counts = axes->replica_idx == 0;
    whole_add(w, &part);
}

/* Weights lie here that others own: they are compared too. */
static void take_others(const struct record *r, struct whole *w, int32_t rank,
                        const struct param_table *table, const struct axes *axes,
                        const struct store *store)
{
    const struct flat_range all = {.numel = table->flat_numel};
    struct whole_part part = part_of(r, rank, table, axes, store, STORE_WEIGHTS);
    part.owned = &all;
    part.num_owned = 1;
    whole_add(w, &part);
}

static void on_gradients(void *arg, int32_t rank, int64_t step, const struct param_table *table,
                         const struct axes *axes, const struct store *store)
{
    struct record *r = arg;
    if (step != 1)
        return;
    take(r, &r->grads, rank, table, axes, store, STORE_GRADS);
    if (r->on_gradients != NULL)
        r->on_gradients(r, rank, table, axes, store);
}

static void on_state(void *arg, int32_t rank, int64_t step, const struct param_table *table,
                     const struct axes *axes, const struct store *store)
{
    struct record *r = arg;
    (void)step;
    take(r, &r->weights, rank, table, axes, store, STORE_MASTERS);
    take_others(r, r->masters ? &r->low : &r->weights, rank, table, axes, store);
    if (r->moments) {
        take(r, &r->exp_avg, rank, table, axes, store, STORE_EXP_AVG);
        take(r, &r->exp_avg_sq, rank, table, axes, store, STORE_EXP_AVG_SQ);
    }
}

void record_init(struct record *r, const Plan *plan)
{
    *r = (struct record){.plan = plan};
    r->moments = optimizer_has_moments(plan->spec->training->optimizer);
    r->masters = strcmp(plan->spec->training->precision, "bf16") == 0;
    r->observer = (struct rank_observer){.arg = r, .gradients = on_gradients, .state = on_state};
    whole_init(&r->grads, plan);
    whole_init(&r->weights, plan);
    whole_init(&r->low, plan);
    whole_init(&r->exp_avg, plan);
    whole_init(&r->exp_avg_sq, plan);
}

void record_free(struct record *r)
{
    whole_free(&r->grads);
    whole_free(&r->weights);
    whole_free(&r->low);
    whole_free(&r->exp_avg);
    whole_free(&r->exp_avg_sq);
}

static void check(struct whole *w, const char *which, const char *what)
{
    whole_check(w);
    if (w->fault[0] != '\0')
        fail_msg("%s: %s: %s", what, which, w->fault);
}

/* Every weight that a rank computes with is its master, rounded; wherever it lies. */
static void check_low(const struct record *r, const char *what)
{
    if (r->low.fault[0] != '\0')
        fail_msg("%s: rounded weights: %s", what, r->low.fault);
    for (int32_t i = 0; i < r->weights.num; i++) {
        const struct whole_tensor *master = &r->weights.tensors[i];
        const struct whole_tensor *low = whole_find(&r->low, master->name);
        for (int64_t j = 0; j < master->numel; j++) {
            double want = (double)rounding_bf16((float)master->values[j]);
            if (low->seen[j] == 0 || low->values[j] != want)
                fail_msg("%s: weight %s, element %lld is %.9g, not %.9g, its master %.9g rounded",
                         what, master->name, (long long)j, low->values[j], want, master->values[j]);
        }
    }
}

void run_prepare(struct run *r, const struct gang_spec *spec)
{
    *r = (struct run){.plan = gang_plan(spec)};
    record_init(&r->record, r->plan);
    r->gang.plan = r->plan;
    r->gang.observer = &r->record.observer;
}

void run_go(struct run *r, const char *what)
{
    gang_run(&r->gang);
    for (int i = 0; i < r->plan->mesh->num_ranks; i++)
        if (r->gang.ranks[i].rc != 0)
            fail_msg("%s: rank %d: %s", what, i, r->gang.ranks[i].err.text);
    check(&r->record.grads, "gradients", what);
    check(&r->record.weights, "weights", what);
    if (r->record.masters)
        check_low(&r->record, what);
    if (r->record.moments) {
        check(&r->record.exp_avg, "first moment", what);
        check(&r->record.exp_avg_sq, "second moment", what);
    }
}

void run_well(struct run *r, const struct gang_spec *spec, const char *job_dir, const char *what)
{
    run_prepare(r, spec);
    r->gang.job_dir = job_dir;
    run_go(r, what);
}

void run_free(struct run *r)
{
    record_free(&r->record);
    plan__free_unpacked(r->plan, NULL);
    r->plan = NULL;
}
