#include "server/curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/msg.h"

#define SERIES_MAX 7

static const char *const series_names[SERIES_MAX + 1] = {"loss",    "grad_norm",    "lr",  "tokens",
                                                         "step_ms", "tokens_per_s", "mfu", NULL};

struct point {
    int64_t step;
    int32_t attempt;
    double values[SERIES_MAX]; /* of the series asked for */
};

struct reading {
    int series[SERIES_MAX]; /* indices into series_names */
    int num_series;
    int num_extremes; /* of the first so many series */
    int64_t rows;     /* in the range */
    /* Thinning: 0 spans = every row. */
    int64_t spans, span, row;
    bool empty; /* nothing of this span yet */
    struct point first, min[SERIES_MAX], max[SERIES_MAX], last;
    /* Result. */
    struct point *points; /* owned */
    int64_t num_points, cap_points;
    bool full;
    int64_t next_from;
};

static int pick_series(struct reading *r, const GetMetricsRequest *q, struct error *err)
{
    for (int i = 0; i < SERIES_MAX && !q->n_series; i++) {
        r->series[r->num_series++] = i;
    }
    for (size_t k = 0; k < q->n_series; k++) {
        int found = -1;
        for (int i = 0; i < SERIES_MAX; i++) {
            found = strcmp(q->series[k], series_names[i]) == 0 ? i : found;
        }
        if (found < 0) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "series: there is no \"%s\"; there are loss, grad_norm, lr, tokens, "
                             "step_ms, tokens_per_s, mfu",
                             q->series[k]);
        }
        if (r->num_series == SERIES_MAX) {
            return error_set(err, ERR_INVALID_ARGUMENT, "series: at most %d", SERIES_MAX);
        }
        r->series[r->num_series++] = found;
    }
    return 0;
}

static double value_of(const StepMetrics *m, int series)
{
    const double none = (double)NAN;
    switch (series) {
    case 0:
        return m->has_loss ? m->loss : none;
    case 1:
        return m->has_grad_norm ? m->grad_norm : none;
    case 2:
        return m->has_lr ? m->lr : none;
    case 3:
        return (double)m->tokens;
    case 4:
        return m->has_step_ms ? m->step_ms : none;
    case 5:
        return m->has_tokens_per_s ? m->tokens_per_s : none;
    default:
        return m->has_mfu ? m->mfu : none;
    }
}

static void read_point(const struct reading *r, const StepMetrics *m, struct point *p)
{
    *p = (struct point){.step = m->step, .attempt = m->attempt};
    for (int i = 0; i < r->num_series; i++) {
        p->values[i] = value_of(m, r->series[i]);
    }
}

static bool add_point(struct reading *r, const struct point *p)
{
    if (r->num_points == CURVE_ROWS_MAX) {
        r->full = true;
        r->next_from = p->step;
        return false;
    }
    if (r->num_points == r->cap_points) {
        r->cap_points = r->cap_points ? 2 * r->cap_points : 256;
        r->points = realloc(r->points, (size_t)r->cap_points * sizeof *r->points);
        ASSERT(r->points);
    }
    r->points[r->num_points++] = *p;
    return true;
}

static int by_step(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    return x->step != y->step ? (x->step < y->step ? -1 : 1) : x->attempt - y->attempt;
}

/* The span's extremes, each row once, in order. */
static void close_span(struct reading *r)
{
    if (r->empty) {
        return;
    }
    struct point kept[2 * SERIES_MAX + 2];
    int num = 0;
    if (r->span == 0) {
        kept[num++] = r->first;
    }
    for (int i = 0; i < r->num_extremes; i++) {
        kept[num++] = r->min[i];
        kept[num++] = r->max[i];
    }
    if (r->span == r->spans - 1) {
        kept[num++] = r->last;
    }
    qsort(kept, (size_t)num, sizeof *kept, by_step);
    for (int i = 0; i < num; i++) {
        if (i == 0 || by_step(&kept[i - 1], &kept[i]) != 0) {
            add_point(r, &kept[i]);
        }
    }
    r->empty = true;
}

static bool take_row(void *arg, const StepMetrics *m)
{
    struct reading *r = arg;
    struct point p;
    read_point(r, m, &p);
    if (r->spans == 0) {
        return add_point(r, &p);
    }
    /* spans <= CURVE_ROWS_MAX, so this can't overflow. */
    int64_t span = r->row * r->spans / r->rows;
    r->row++;
    span = span < r->spans ? span : r->spans - 1;
    if (span != r->span) {
        close_span(r);
        r->span = span;
    }
    if (r->empty) {
        r->first = p;
    }
    for (int i = 0; i < r->num_extremes; i++) {
        /* NaN is an extreme too, of both kinds: nothing compares against it. */
        if (r->empty || !(p.values[i] >= r->min[i].values[i])) {
            r->min[i] = p;
        }
        if (r->empty || !(p.values[i] <= r->max[i].values[i])) {
            r->max[i] = p;
        }
    }
    r->last = p;
    r->empty = false;
    return !r->full;
}

static bool count_row(void *arg, const StepMetrics *m)
{
    (void)m;
    ++*(int64_t *)arg;
    return true;
}

static Metrics *as_message(struct reading *r, int64_t job)
{
    Metrics *out = msg_new(&metrics__descriptor);
    MSG_SET(out, job_id, job);
    size_t num = (size_t)r->num_points;
    out->steps = calloc(num + 1, sizeof *out->steps);
    out->attempts = calloc(num + 1, sizeof *out->attempts);
    ASSERT(out->steps && out->attempts);
    out->n_steps = out->n_attempts = num;
    for (size_t i = 0; i < num; i++) {
        out->steps[i] = r->points[i].step;
        out->attempts[i] = r->points[i].attempt;
    }
    for (int k = 0; k < r->num_series; k++) {
        Column *col = msg_new(&column__descriptor);
        msg_text(&col->name, series_names[r->series[k]]);
        col->values = calloc(num + 1, sizeof *col->values);
        ASSERT(col->values);
        col->n_values = num;
        for (size_t i = 0; i < num; i++) {
            col->values[i] = r->points[i].values[k];
        }
        msg_push(&out->columns, &out->n_columns, col);
    }
    MSG_SET(out, truncated, r->full);
    if (r->full) {
        MSG_SET(out, next_from, r->next_from);
    }
    return out;
}

/* How many spans, so that their extremes and the two ends are no more than points; with few points
 * only the extremes of the first series count. */
static void choose_spans(struct reading *r, int64_t points)
{
    points = points < CURVE_ROWS_MAX ? points : CURVE_ROWS_MAX;
    if (points <= 0 || r->rows <= points) {
        return;
    }
    int64_t room = (points - 2) / 2;
    r->num_extremes = room < r->num_series ? (int)room : r->num_series;
    r->spans = room / r->num_extremes;
    r->empty = true;
}

int curve_read(struct store *s, const GetMetricsRequest *q, int64_t job, Metrics **out,
               struct error *err)
{
    struct reading r = {0};
    if (q->from < 0 || q->to < 0 || q->points < 0 || q->attempt < 0) {
        return error_set(err, ERR_INVALID_ARGUMENT, "from, to, points, attempt: 0 or more");
    }
    if (pick_series(&r, q, err) != 0) {
        return -1;
    }
    struct store_metric_range range = {
        .job = job, .from = q->from, .to = q->to, .attempt = q->attempt};
    if (q->points > 0 && q->points < 4) {
        return error_set(err, ERR_INVALID_ARGUMENT, "points: 0, or at least 4");
    }
    if (q->points > 0) {
        if (store_metric_scan(s, &range, count_row, &r.rows, err) != 0) {
            return -1;
        }
        choose_spans(&r, q->points);
    }
    int rc = store_metric_scan(s, &range, take_row, &r, err);
    if (rc == 0) {
        if (r.spans) {
            close_span(&r);
        }
        *out = as_message(&r, job);
    }
    free(r.points);
    return rc;
}
