/* Cross entropy, whole and of a cut vocabulary. */
#include "kernels/cuda/front.h"

int front_cross_entropy(struct device *dev, struct stream *s, enum dtype t, double *nll,
                        void *dlogits, const void *logits, const int32_t *targets, double dloss,
                        int64_t r, int64_t v, int64_t ld, struct error *err)
{
    if (!front_has_type("cross_entropy", t, err)) {
        return -1;
    }
    ASSERT(ld >= v);
    return FRONT_LAUNCH(
        "cross_entropy", dev,
        cuda_cross_entropy(s->cuda, t, nll, dlogits, logits, targets, dloss, r, v, ld));
}

int front_ce_max(struct device *dev, struct stream *s, enum dtype t, double *max,
                 const struct logits_part *p, struct error *err)
{
    if (!front_has_type("ce_max", t, err)) {
        return -1;
    }
    front_check_part(p);
    return FRONT_LAUNCH("ce_max", dev, cuda_ce_max(s->cuda, t, max, p));
}

int front_ce_sum(struct device *dev, struct stream *s, enum dtype t, double *sums,
                 const double *max, const struct logits_part *p, struct error *err)
{
    if (!front_has_type("ce_sum", t, err)) {
        return -1;
    }
    front_check_part(p);
    return FRONT_LAUNCH("ce_sum", dev, cuda_ce_sum(s->cuda, t, sums, max, p));
}

int front_ce_finish(struct device *dev, struct stream *s, enum dtype t, double *nll, void *dlogits,
                    const double *max, const double *sums, double dloss,
                    const struct logits_part *p, struct error *err)
{
    if (!front_has_type("ce_finish", t, err)) {
        return -1;
    }
    front_check_part(p);
    return FRONT_LAUNCH("ce_finish", dev,
                        cuda_ce_finish(s->cuda, t, nll, dlogits, max, sums, dloss, p));
}
