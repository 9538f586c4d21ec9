#include "plan/pieces.h"

/* How a parameter is cut: the tensor as [outer][groups][parts][unit], where part is what stays
 * whole in the split dimension, times the dimensions behind it. */
struct cut {
    int64_t outer, groups, parts, unit;
    int64_t room;       /* parts of a group that a rank has room for */
    int64_t first, num; /* those that this rank holds: num <= room */
};

static bool is_cut(const struct param *p, int64_t size)
{
    return p->tensor_shard && size > 1;
}

static int64_t dims(const struct param *p, int32_t begin, int32_t end)
{
    int64_t n = 1;
    for (int32_t i = begin; i < end; i++) {
        n *= p->shape[i];
    }
    return n;
}

/* Parts that stay whole lie on several ranks where there are fewer of them. */
static bool is_repeated(const struct param *p, int64_t size)
{
    return is_cut(p, size) && p->shard_parts > 0 && p->shard_parts < size;
}

static struct cut cut_of(const struct param *p, int64_t size, int64_t idx)
{
    if (!is_cut(p, size)) {
        int64_t n = dims(p, 0, p->num_dims);
        return (struct cut){.outer = 1, .groups = 1, .parts = 1, .unit = n, .room = 1, .num = 1};
    }
    int64_t groups = p->shard_groups > 0 ? p->shard_groups : 1;
    int64_t block = p->shape[p->shard_dim] / groups;
    int64_t parts = p->shard_parts > 0 ? p->shard_parts : block;
    struct cut c = {
        .outer = dims(p, 0, p->shard_dim),
        .groups = groups,
        .parts = parts,
        .unit = block / parts * dims(p, p->shard_dim + 1, p->num_dims),
        .room = (parts + size - 1) / size,
    };
    if (is_repeated(p, size)) {
        c.first = idx * parts / size;
        c.num = 1;
        return c;
    }
    c.first = idx * c.room < parts ? idx * c.room : parts;
    c.num = parts - c.first < c.room ? parts - c.first : c.room;
    return c;
}

int pieces_each(const struct param *p, int64_t size, int64_t idx, int64_t begin, int64_t end,
                piece_fn fn, void *arg, struct error *err)
{
    ASSERT(size >= 1 && idx >= 0 && idx < size && begin >= 0 && end <= p->numel);
    struct cut c = cut_of(p, size, idx);
    int64_t stride = c.room * c.unit, held = c.num * c.unit;
    ASSERT(c.outer * c.groups * stride == p->numel);
    if (held == 0 || begin >= end) {
        return 0;
    }
    for (int64_t run = begin / stride; run * stride < end; run++) {
        int64_t from = run * stride, to = from + held;
        int64_t lo = begin > from ? begin : from, hi = end < to ? end : to;
        struct piece piece = {
            .whole = (run * c.parts + c.first) * c.unit + lo - from,
            .local = lo,
            .numel = hi - lo,
        };
        if (lo < hi && fn(arg, &piece, err) != 0) {
            return -1;
        }
    }
    return 0;
}

bool pieces_counted(const struct param *p, int64_t size, int64_t idx)
{
    ASSERT(size >= 1 && idx >= 0 && idx < size);
    if (!is_cut(p, size)) {
        return idx == 0;
    }
    if (!is_repeated(p, size)) {
        return true;
    }
    return idx == 0 || (idx - 1) * p->shard_parts / size != idx * p->shard_parts / size;
}
