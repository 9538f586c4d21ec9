#include "runtime/ckpt/state.h"

/* While one parameter is walked. */
struct walk {
    const struct ckpt_state *state;
    const struct ckpt_part *part;
    const struct param *param;
    state_fn fn;
    void *arg;
    int64_t shift; /* from local element to element of the buffer */
};

static int on_piece(void *arg, const struct piece *piece, struct error *err)
{
    const struct walk *w = arg;
    struct state_run run = {piece->whole, piece->local + w->shift, piece->numel};
    return w->fn(w->arg, &run, err);
}

/* Elements begin <= i < end of the flat layout, which lie in one range of the part. */
static int walk_range(struct walk *w, const struct flat_range *range, int64_t begin, int64_t end,
                      struct error *err)
{
    const struct ckpt_state *s = w->state;
    int64_t offset = w->param->offset;
    w->shift = range->at + offset - range->begin;
    return pieces_each(w->param, s->tensor > 0 ? s->tensor : 1, s->tensor_idx, begin - offset,
                       end - offset, on_piece, w, err);
}

/* The first range that ends behind element i; num where there is none. */
static int32_t first_range(const struct flat_range *ranges, int32_t num, int64_t i)
{
    int32_t lo = 0, hi = num;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (ranges[mid].begin + ranges[mid].numel > i) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo;
}

static struct flat_range everything(const struct ckpt_state *s)
{
    return (struct flat_range){.numel = s->table->flat_numel};
}

/* The part's ranges; all is room for the one of a whole buffer. */
static int32_t part_ranges(const struct ckpt_state *s, const struct ckpt_part *part,
                           struct flat_range *all, const struct flat_range **ranges)
{
    *all = everything(s);
    *ranges = part->ranges ? part->ranges : all;
    return part->ranges ? part->num_ranges : 1;
}

static int32_t owned_ranges(const struct ckpt_state *s, struct flat_range *all,
                            const struct flat_range **ranges)
{
    *all = everything(s);
    *ranges = s->owned ? s->owned : all;
    return s->owned ? s->num_owned : 1;
}

/* What of begin <= i < end lies in a range. */
static bool clip(const struct flat_range *range, int64_t *begin, int64_t *end)
{
    int64_t range_end = range->begin + range->numel;
    *begin = *begin > range->begin ? *begin : range->begin;
    *end = *end < range_end ? *end : range_end;
    return *begin < *end;
}

static int walk_part(struct walk *w, int64_t begin, int64_t end, struct error *err)
{
    struct flat_range all;
    const struct flat_range *ranges;
    int32_t num = part_ranges(w->state, w->part, &all, &ranges);
    for (int32_t i = first_range(ranges, num, begin); i < num && ranges[i].begin < end; i++) {
        int64_t lo = begin, hi = end;
        if (clip(&ranges[i], &lo, &hi) && walk_range(w, &ranges[i], lo, hi, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int state_each(const struct ckpt_state *s, const struct ckpt_part *part, const struct param *p,
               state_fn fn, void *arg, struct error *err)
{
    struct walk w = {s, part, p, fn, arg, 0};
    return walk_part(&w, p->offset, p->offset + p->numel, err);
}

int state_each_owned(const struct ckpt_state *s, const struct ckpt_part *part,
                     const struct param *p, state_fn fn, void *arg, struct error *err)
{
    if (!pieces_counted(p, s->tensor > 0 ? s->tensor : 1, s->tensor_idx)) {
        return 0;
    }
    struct walk w = {s, part, p, fn, arg, 0};
    struct flat_range all;
    const struct flat_range *owned;
    int32_t num = owned_ranges(s, &all, &owned);
    int64_t end = p->offset + p->numel;
    for (int32_t i = first_range(owned, num, p->offset); i < num && owned[i].begin < end; i++) {
        int64_t lo = p->offset, hi = end;
        if (clip(&owned[i], &lo, &hi) && walk_part(&w, lo, hi, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int64_t ckpt_copy_layout(const struct ckpt_state *s, struct flat_range *out)
{
    struct flat_range all;
    const struct flat_range *owned;
    int32_t num = owned_ranges(s, &all, &owned);
    int64_t at = 0;
    for (int32_t i = 0; i < num; i++) {
        out[i] = (struct flat_range){owned[i].begin, owned[i].numel, at};
        at += owned[i].numel;
    }
    return at;
}

int ckpt_copy_each(const struct ckpt_state *s, const struct ckpt_part *part, ckpt_copy_fn fn,
                   void *arg, struct error *err)
{
    struct flat_range all_owned, all;
    const struct flat_range *owned, *ranges;
    int32_t num_owned = owned_ranges(s, &all_owned, &owned);
    int32_t num = part_ranges(s, part, &all, &ranges);
    int64_t to = 0;
    for (int32_t k = 0; k < num_owned; to += owned[k++].numel) {
        int64_t end = owned[k].begin + owned[k].numel;
        for (int32_t i = first_range(ranges, num, owned[k].begin); i < num && ranges[i].begin < end;
             i++) {
            int64_t lo = owned[k].begin, hi = end;
            if (clip(&ranges[i], &lo, &hi) &&
                fn(arg, to + lo - owned[k].begin, ranges[i].at + lo - ranges[i].begin, hi - lo,
                   err) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

static int found(void *arg, const struct state_run *run, struct error *err)
{
    (void)arg;
    (void)run;
    (void)err;
    return -1;
}

bool state_any(const struct ckpt_state *s, const struct ckpt_part *part, const struct param *p)
{
    return state_each(s, part, p, found, NULL, NULL) != 0;
}

int64_t state_true_numel(const struct param *p)
{
    int64_t n = 1;
    for (int32_t i = 0; i < p->num_dims; i++) {
        n *= p->shape[i];
    }
    return n;
}

void *state_at(const struct ckpt_state *s, const struct ckpt_part *part, int64_t i)
{
    return (char *)part->data + (size_t)i * dtype_size(s->dtype);
}
