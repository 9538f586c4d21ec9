/* The made-up model of store_case.h, and what a step must leave, added up in rank order. */
#ifndef TANDEM_TESTS_STORE_CASE_WANT_H
#define TANDEM_TESTS_STORE_CASE_WANT_H

#include "plan/params.h"
#include "proto/names.h"
#include "tests/parallel/store_case.h"

#define CASE_LR 0.01
#define CASE_DECAY 0.1
#define CASE_BETA1 0.9
#define CASE_BETA2 0.95
#define CASE_EPS 1e-8

struct store_case {
    struct store_case_spec spec; /* defaults filled in */
    int32_t num_shards, num_units, stage;
    struct param_table table; /* alike on all ranks */
    Stage plan_stage;
    Plan plan;
    int64_t num_elements;
    /* [steps][tensor][flat], after all sums; [steps]; [steps + 1][tensor][flat]. */
    double *grads, *norms, *weights, *exp_avg, *exp_avg_sq;
};

void store_case_open(struct store_case *c, const struct store_case_spec *spec);
void store_case_close(struct store_case *c);

/* One contribution to a gradient: element idx of the flat layout, of parameter p. use 1: by the
 * head, of a tied embedding. */
double store_case_grad(const struct store_case *c, int32_t step, int32_t data, int32_t tensor,
                       int32_t micro, int32_t use, const struct param *p, int64_t idx);
/* Does unit's backward pass add to p? *use as above. */
bool store_case_uses(const struct store_case *c, int32_t unit, const struct param *p, int32_t *use);

static inline double *store_case_at(const struct store_case *c, double *all, int32_t step,
                                    int32_t tensor)
{
    return all + ((int64_t)step * c->spec.tensor + tensor) * c->table.flat_numel;
}

#endif
