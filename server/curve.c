#include "server/curve.h"

#include <stdlib.h>
#include <string.h>

#include "server/msg.h"

#define SERIES_MAX METRIC_SERIES
/* So few points are made up to as many as were asked for, a look into the database each. */
#define FILLED_POINTS_MAX 128
/* Damaged chunks that a reply names. */
#define GAPS_MAX 64

static const char *const series_names[SERIES_MAX + 1] = {"loss",    "grad_norm",    "lr",  "tokens",
                                                         "step_ms", "tokens_per_s", "mfu", NULL};

struct point {
    int64_t step;
    int32_t attempt;
    double values[SERIES_MAX]; /* of the series asked for */
    bool closed;               /* there is no row between it and the next point */
};

struct span {
    bool any; /* a row of it was seen */
};

struct gap {
    int32_t attempt;
    int64_t first, last;
};

struct reading {
    int series[SERIES_MAX]; /* indices into series_names */
    int num_series;
    int num_extremes; /* of the first so many series */
    /* Thinning. A span is the blocks i with i * num_spans / num_blocks the same: a block of steps
     * is never split, so that its extremes can be had without its rows. */
    int64_t block_steps, first_block, num_blocks, num_spans;
    struct span *spans;          /* owned */
    struct metric_row *extremes; /* owned; min, max of each series of each span */
    bool any;
    struct metric_row first, last; /* of the curve */
    /* Result. */
    struct point *points; /* owned */
    int64_t num_points, cap_points;
    bool full;
    int64_t next_from;
    bool thinned;
    struct gap gaps[GAPS_MAX];
    int num_gaps;
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

static void read_point(const struct reading *r, const struct metric_row *row, struct point *p)
{
    *p = (struct point){.step = row->step, .attempt = row->attempt};
    for (int i = 0; i < r->num_series; i++) {
        p->values[i] = row->values[r->series[i]];
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

static bool take_row(void *arg, const struct metric_row *row)
{
    struct point p;
    read_point(arg, row, &p);
    return add_point(arg, &p);
}

/* ---- thinning ---- */

static int by_step(const void *a, const void *b)
{
    const struct metric_row *x = *(const struct metric_row *const *)a;
    const struct metric_row *y = *(const struct metric_row *const *)b;
    return metric_before(y, x) - metric_before(x, y);
}

static struct span *span_of(struct reading *r, int64_t step)
{
    int64_t block = (step - 1) / r->block_steps - r->first_block;
    /* Outside only if what the database says of a chunk isn't what it holds. */
    block = block < 0 ? 0 : block < r->num_blocks ? block : r->num_blocks - 1;
    return &r->spans[block * r->num_spans / r->num_blocks];
}

static void take_extreme(struct reading *r, struct span *s, int k, const struct metric_row *min,
                         const struct metric_row *max)
{
    int series = r->series[k];
    struct metric_row *have = &r->extremes[(s - r->spans) * 2 * r->num_extremes + 2 * k];
    if (!s->any || metric_is_lower(min, &have[0], series)) {
        have[0] = *min;
    }
    if (!s->any || metric_is_higher(max, &have[1], series)) {
        have[1] = *max;
    }
}

static void take_ends(struct reading *r, const struct metric_row *first,
                      const struct metric_row *last)
{
    if (!r->any || metric_before(first, &r->first)) {
        r->first = *first;
    }
    if (!r->any || metric_before(&r->last, last)) {
        r->last = *last;
    }
    r->any = true;
}

static void thin_row(void *arg, const struct metric_row *row)
{
    struct reading *r = arg;
    struct span *s = span_of(r, row->step);
    for (int k = 0; k < r->num_extremes; k++) {
        take_extreme(r, s, k, row, row);
    }
    s->any = true;
    take_ends(r, row, row);
}

static void thin_block(void *arg, const struct metric_extremes *e)
{
    struct reading *r = arg;
    struct span *s = span_of(r, e->first.step);
    for (int k = 0; k < r->num_extremes; k++) {
        take_extreme(r, s, k, &e->min[r->series[k]], &e->max[r->series[k]]);
    }
    s->any = true;
    take_ends(r, &e->first, &e->last);
}

/* The span's extremes and the curve's ends, each row once, in order. */
static void close_span(struct reading *r, int64_t i)
{
    const struct metric_row *kept[2 * SERIES_MAX + 2];
    size_t num = 0;
    for (int k = 0; k < 2 * r->num_extremes && r->spans[i].any; k++) {
        kept[num++] = &r->extremes[i * 2 * r->num_extremes + k];
    }
    if (r->any && i == 0) {
        kept[num++] = &r->first;
    }
    if (r->any && i == r->num_spans - 1) {
        kept[num++] = &r->last;
    }
    qsort(kept, num, sizeof(struct metric_row *), by_step);
    for (size_t k = 0; k < num; k++) {
        if (k == 0 || by_step(&kept[k - 1], &kept[k]) != 0) {
            take_row(r, kept[k]);
        }
    }
}

/* How many spans, so that their extremes and the two ends are no more than points; with few points
 * only the extremes of the first series count. */
static void choose_spans(struct reading *r, int64_t points, const struct store_metric_extent *e)
{
    int64_t room = (points - 2) / 2, steps = e->last - e->first + 1;
    r->num_extremes = room < r->num_series ? (int)room : r->num_series;
    r->num_spans = room / r->num_extremes;
    r->block_steps = store_metric_block(steps / r->num_spans);
    r->first_block = (e->first - 1) / r->block_steps;
    r->num_blocks = (e->last - 1) / r->block_steps - r->first_block + 1;
    r->spans = calloc((size_t)r->num_spans, sizeof *r->spans);
    r->extremes = calloc((size_t)r->num_spans * 2 * (size_t)r->num_extremes, sizeof *r->extremes);
    ASSERT(r->spans && r->extremes);
}

static void note_gap(void *arg, enum store_metric_loss what, int32_t attempt, int64_t first,
                     int64_t last)
{
    struct reading *r = arg;
    if (what == METRIC_THINNED) {
        r->thinned = true;
    } else if (r->num_gaps < GAPS_MAX) {
        r->gaps[r->num_gaps++] = (struct gap){attempt, first, last};
    }
}

static int thin(struct store *s, struct reading *r, const struct store_metric_range *range,
                struct error *err)
{
    const struct store_metric_visitor v = {
        .row = thin_row, .block = thin_block, .gap = note_gap, .arg = r};
    if (store_metric_blocks(s, range, r->block_steps, &v, err) != 0) {
        return -1;
    }
    for (int64_t i = 0; i < r->num_spans; i++) {
        close_span(r, i);
    }
    return 0;
}

/* ---- filling up ---- */

/* Extremes of several series are often the same few rows, so few points would be fewer still. */

struct one_row {
    struct metric_row row;
    bool found;
};

static bool take_one(void *arg, const struct metric_row *row)
{
    struct one_row *one = arg;
    one->row = *row;
    one->found = true;
    return false;
}

/* The first point of the widest gap that may hold another row; -1 = there is none. */
static int64_t widest_gap(const struct reading *r)
{
    int64_t best = -1, width = 1;
    for (int64_t i = 0; i + 1 < r->num_points; i++) {
        int64_t w = r->points[i + 1].step - r->points[i].step;
        if (!r->points[i].closed && w > width) {
            best = i;
            width = w;
        }
    }
    return best;
}

static int find_one(struct store *s, const struct store_metric_range *range, int64_t from,
                    int64_t to, struct one_row *one, struct error *err)
{
    struct store_metric_range part = *range;
    part.from = from;
    part.to = to;
    return from > to || one->found ? 0 : store_metric_scan(s, &part, take_one, NULL, one, err);
}

static void insert_point(struct reading *r, int64_t at, const struct metric_row *row)
{
    struct point p;
    read_point(r, row, &p);
    if (add_point(r, &p)) {
        memmove(&r->points[at + 1], &r->points[at],
                (size_t)(r->num_points - 1 - at) * sizeof *r->points);
        r->points[at] = p;
    }
}

/* Rows from the middle of the widest gaps, until there are as many as points. */
static int fill_up(struct store *s, struct reading *r, const struct store_metric_range *range,
                   int64_t points, struct error *err)
{
    int64_t at;
    while (r->num_points < points && (at = widest_gap(r)) >= 0) {
        struct one_row one = {.found = false};
        int64_t first = r->points[at].step + 1, last = r->points[at + 1].step - 1;
        int64_t middle = first + (last - first) / 2;
        if (find_one(s, range, middle, last, &one, err) != 0 ||
            find_one(s, range, first, middle - 1, &one, err) != 0) {
            return -1;
        }
        if (one.found) {
            insert_point(r, at + 1, &one.row);
        } else {
            r->points[at].closed = true;
        }
    }
    return 0;
}

/* ---- the reply ---- */

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
    if (r->thinned) {
        MSG_SET(out, thinned, 1);
    }
    for (int i = 0; i < r->num_gaps; i++) {
        MetricsGap *gap = msg_new(&metrics_gap__descriptor);
        MSG_SET(gap, attempt, r->gaps[i].attempt);
        MSG_SET(gap, from, r->gaps[i].first);
        MSG_SET(gap, to, r->gaps[i].last);
        msg_push(&out->gaps, &out->n_gaps, gap);
    }
    return out;
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
    struct store_metric_extent extent = {0};
    int64_t points = q->points < CURVE_ROWS_MAX ? q->points : CURVE_ROWS_MAX;
    if (points > 0 && store_metric_extent(s, &range, points, &extent, err) != 0) {
        return -1;
    }
    int rc;
    if (points > 0 && extent.rows > points) {
        choose_spans(&r, points, &extent);
        rc = thin(s, &r, &range, err);
        if (rc == 0 && points <= FILLED_POINTS_MAX) {
            rc = fill_up(s, &r, &range, points, err);
        }
    } else {
        rc = store_metric_scan(s, &range, take_row, note_gap, &r, err);
    }
    if (rc == 0) {
        *out = as_message(&r, job);
    }
    free(r.points);
    free(r.spans);
    free(r.extremes);
    return rc;
}
