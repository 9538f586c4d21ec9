#include "whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_tensor(struct whole *w, const struct param *p)
{
    struct whole_tensor *t = &w->tensors[w->num++];
    snprintf(t->name, sizeof(t->name), "%s", p->name);
    t->num_dims = p->num_dims;
    t->numel = 1;
    for (int32_t i = 0; i < p->num_dims; i++) {
        t->shape[i] = p->shape[i];
        t->numel *= p->shape[i];
    }
    t->values = calloc((size_t)t->numel, sizeof(*t->values));
    t->seen = calloc((size_t)t->numel, 1);
    t->counted = calloc((size_t)t->numel, 1);
    ASSERT(t->values && t->seen && t->counted);
}

void whole_init(struct whole *w, const Plan *plan)
{
    struct param_table table;
    struct error err = {0};
    *w = (struct whole){0};
    pthread_mutex_init(&w->lock, NULL);
    ASSERT(params_expand(plan, 0, &table, &err) == 0);
    w->tensors = calloc((size_t)table.num_params, sizeof(*w->tensors));
    ASSERT(w->tensors);
    for (int32_t i = 0; i < table.num_params; i++)
        add_tensor(w, &table.params[i]);
    params_free(&table);
}

void whole_free(struct whole *w)
{
    for (int32_t i = 0; i < w->num; i++) {
        free(w->tensors[i].values);
        free(w->tensors[i].seen);
        free(w->tensors[i].counted);
    }
    free(w->tensors);
    pthread_mutex_destroy(&w->lock);
    *w = (struct whole){0};
}

struct whole_tensor *whole_find(const struct whole *w, const char *name)
{
    for (int32_t i = 0; i < w->num; i++)
        if (strcmp(w->tensors[i].name, name) == 0)
            return &w->tensors[i];
    return NULL;
}

/* ---- what a rank brings -----------------------------------------------------------------------
 */

static double read_element(const struct whole_part *part, int64_t at)
{
    if (part->dtype == DTYPE_F64)
        return ((const double *)part->data)[at];
    if (part->dtype == DTYPE_F32)
        return (double)((const float *)part->data)[at];
    uint32_t bits = (uint32_t)((const uint16_t *)part->data)[at] << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return (double)value;
}

/* One parameter's elements of a run that lies both in the buffer and among the owned. */
struct taking {
    struct whole *w;
    const struct whole_part *part;
    const struct param *p;
    struct whole_tensor *t;
    int64_t data_minus_flat;
    uint8_t *used; /* of the run, from flat element run_begin */
    int64_t run_begin;
};

static void take_element(struct taking *take, int64_t whole, int64_t flat)
{
    struct whole_tensor *t = take->t;
    double value = read_element(take->part, flat + take->data_minus_flat);
    if (t->seen[whole] == 0)
        t->values[whole] = value;
    else if (memcmp(&t->values[whole], &value, sizeof(value)) != 0 && take->w->fault[0] == '\0')
        snprintf(take->w->fault, sizeof(take->w->fault),
                 "%s: element %lld is %.17g on rank %d, %.17g on another", t->name,
                 (long long)whole, value, take->part->rank, t->values[whole]);
    t->seen[whole]++;
    bool counts = take->part->counts &&
                  pieces_counted(take->p, take->part->tensor_size, take->part->tensor_idx);
    t->counted[whole] = (uint8_t)(t->counted[whole] + counts);
    take->used[flat - take->run_begin] = 1;
}

static int take_piece(void *arg, const struct piece *piece, struct error *err)
{
    struct taking *take = arg;
    (void)err;
    ASSERT(piece->whole >= 0 && piece->whole + piece->numel <= take->t->numel);
    for (int64_t i = 0; i < piece->numel; i++)
        take_element(take, piece->whole + i, take->p->offset + piece->local + i);
    return 0;
}

static void check_padding(struct taking *take, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        double value = read_element(take->part, i + take->data_minus_flat);
        if (!take->used[i - begin] && !(value == 0.0) && take->w->fault[0] == '\0')
            snprintf(take->w->fault, sizeof(take->w->fault),
                     "rank %d: padding at element %lld of the flat layout is %g", take->part->rank,
                     (long long)i, value);
    }
}

static void take_run(struct whole *w, const struct whole_part *part, int64_t begin, int64_t end,
                     int64_t data_minus_flat)
{
    struct taking take = {.w = w,
                          .part = part,
                          .data_minus_flat = data_minus_flat,
                          .used = calloc((size_t)(end - begin), 1),
                          .run_begin = begin};
    ASSERT(take.used);
    for (int32_t i = 0; i < part->table->num_params; i++) {
        const struct param *p = &part->table->params[i];
        int64_t from = p->offset > begin ? p->offset : begin;
        int64_t to = p->offset + p->numel < end ? p->offset + p->numel : end;
        if (from >= to)
            continue;
        take.p = p;
        take.t = whole_find(w, p->name);
        ASSERT(take.t);
        ASSERT(pieces_each(p, part->tensor_size, part->tensor_idx, from - p->offset, to - p->offset,
                           take_piece, &take, NULL) == 0);
    }
    check_padding(&take, begin, end);
    free(take.used);
}

void whole_add(struct whole *w, const struct whole_part *part)
{
    pthread_mutex_lock(&w->lock);
    for (int32_t i = 0; i < part->num_ranges; i++) {
        const struct flat_range *r = &part->ranges[i];
        for (int32_t j = 0; j < part->num_owned; j++) {
            const struct flat_range *o = &part->owned[j];
            int64_t begin = r->begin > o->begin ? r->begin : o->begin;
            int64_t end = r->begin + r->numel < o->begin + o->numel ? r->begin + r->numel
                                                                    : o->begin + o->numel;
            if (begin < end)
                take_run(w, part, begin, end, r->at - r->begin);
        }
    }
    pthread_mutex_unlock(&w->lock);
}

void whole_check(struct whole *w)
{
    for (int32_t i = 0; i < w->num && w->fault[0] == '\0'; i++) {
        const struct whole_tensor *t = &w->tensors[i];
        for (int64_t j = 0; j < t->numel && w->fault[0] == '\0'; j++)
            if (t->counted[j] != 1)
                snprintf(w->fault, sizeof(w->fault),
                         "%s: element %lld is held %d times, counted %d", t->name, (long long)j,
                         t->seen[j], t->counted[j]);
    }
}

/* ---- distances --------------------------------------------------------------------------------
 */

static void compare_tensor(struct whole_distance *d, const struct whole_tensor *a,
                           const struct whole_tensor *b)
{
    double apart = 0.0, all = 0.0, apart_max = 0.0, all_max = 0.0;
    for (int64_t i = 0; i < a->numel; i++) {
        double off = fabs(a->values[i] - b->values[i]), size = fabs(a->values[i]);
        apart += off * off;
        all += size * size;
        apart_max = off <= apart_max ? apart_max : off; /* NaN stays */
        all_max = size <= all_max ? all_max : size;
    }
    /* Both zero: equal. */
    double l2 = apart == 0.0 ? 0.0 : sqrt(apart) / sqrt(all);
    double max = apart_max == 0.0 ? 0.0 : apart_max / all_max;
    if (!(l2 <= d->l2)) {
        d->l2 = l2;
        snprintf(d->l2_name, sizeof(d->l2_name), "%s", a->name);
    }
    if (!(max <= d->max)) {
        d->max = max;
        snprintf(d->max_name, sizeof(d->max_name), "%s", a->name);
    }
}

struct whole_distance whole_compare(const struct whole *a, const struct whole *b,
                                    bool (*skip)(const char *name))
{
    struct whole_distance d = {0};
    ASSERT(a->num == b->num);
    for (int32_t i = 0; i < a->num; i++) {
        const struct whole_tensor *other = whole_find(b, a->tensors[i].name);
        ASSERT(other && other->numel == a->tensors[i].numel);
        if (skip == NULL || !skip(a->tensors[i].name))
            compare_tensor(&d, &a->tensors[i], other);
    }
    return d;
}
