#include "server/store/metric_row.h"

/* -1, 0, 1; NaN above all numbers. */
static int compare(double a, double b)
{
    if (isnan(a) || isnan(b)) {
        return (isnan(a) != 0) - (isnan(b) != 0);
    }
    return (a > b) - (a < b);
}

bool metric_is_lower(const struct metric_row *a, const struct metric_row *b, int series)
{
    int order = compare(a->values[series], b->values[series]);
    return order != 0 ? order < 0 : metric_before(a, b);
}

bool metric_is_higher(const struct metric_row *a, const struct metric_row *b, int series)
{
    int order = compare(a->values[series], b->values[series]);
    return order != 0 ? order > 0 : metric_before(a, b);
}

void metric_extremes_add(struct metric_extremes *e, const struct metric_row *r)
{
    for (int i = 0; i < METRIC_SERIES; i++) {
        if (!e->any || metric_is_lower(r, &e->min[i], i)) {
            e->min[i] = *r;
        }
        if (!e->any || metric_is_higher(r, &e->max[i], i)) {
            e->max[i] = *r;
        }
    }
    if (!e->any || metric_before(r, &e->first)) {
        e->first = *r;
    }
    if (!e->any || metric_before(&e->last, r)) {
        e->last = *r;
    }
    e->any = true;
}

void metric_extremes_merge(struct metric_extremes *e, const struct metric_extremes *more)
{
    if (!more->any || !e->any) {
        *e = more->any ? *more : *e;
        return;
    }
    for (int i = 0; i < METRIC_SERIES; i++) {
        if (metric_is_lower(&more->min[i], &e->min[i], i)) {
            e->min[i] = more->min[i];
        }
        if (metric_is_higher(&more->max[i], &e->max[i], i)) {
            e->max[i] = more->max[i];
        }
    }
    if (metric_before(&more->first, &e->first)) {
        e->first = more->first;
    }
    if (metric_before(&e->last, &more->last)) {
        e->last = more->last;
    }
}
