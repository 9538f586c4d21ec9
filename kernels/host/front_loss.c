/* The fronts of the losses. */
#include "kernels/host/front.h"

int front_cross_entropy(struct device *dev, struct stream *s, enum dtype t, double *nll,
                        void *dlogits, const void *logits, const int32_t *targets, double dloss,
                        int64_t r, int64_t v, int64_t ld, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "cross_entropy", t, err);
    }
    ASSERT(ld >= v);
    struct cross_entropy_args a = {.nll = nll,
                                   .dlogits = dlogits,
                                   .logits = logits,
                                   .targets = targets,
                                   .dloss = dloss,
                                   .r = r,
                                   .v = v,
                                   .ld = ld};
    return front_submit(dev, s, "cross_entropy", l->cross_entropy, &a, sizeof a, err);
}

int front_ce_max(struct device *dev, struct stream *s, enum dtype t, double *max,
                 const struct logits_part *p, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "ce_max", t, err);
    }
    front_check_part(p);
    struct ce_args a = {.p = *p, .out = max};
    return front_submit(dev, s, "ce_max", l->ce_max, &a, sizeof a, err);
}

int front_ce_sum(struct device *dev, struct stream *s, enum dtype t, double *sums,
                 const double *max, const struct logits_part *p, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "ce_sum", t, err);
    }
    front_check_part(p);
    struct ce_args a = {.p = *p, .out = sums, .max = max};
    return front_submit(dev, s, "ce_sum", l->ce_sum, &a, sizeof a, err);
}

int front_ce_finish(struct device *dev, struct stream *s, enum dtype t, double *nll, void *dlogits,
                    const double *max, const double *sums, double dloss,
                    const struct logits_part *p, struct error *err)
{
    const struct loops *l = front_loops(dev, t);
    if (!l) {
        return front_no_such_type(dev, "ce_finish", t, err);
    }
    front_check_part(p);
    struct ce_args a = {
        .p = *p, .out = nll, .dlogits = dlogits, .max = max, .sums = sums, .dloss = dloss};
    return front_submit(dev, s, "ce_finish", l->ce_finish, &a, sizeof a, err);
}
