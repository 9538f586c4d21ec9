#include "runtime/parallel/arenas.h"

#include <stdlib.h>

struct piece {
    char *mem;
    bool shared, planned;
    size_t bytes, used;
};

struct arenas {
    struct device *dev;              /* borrowed */
    struct comm_world *world;        /* borrowed; NULL = no memory that others read in place */
    bool planned;                    /* else each taking is an allocation */
    struct piece pieces[ARENAS_MAX]; /* by kind */
    void **mems;                     /* owned: what of it is device memory */
    size_t num_mems, max_mems;
};

static const char *const words[ARENAS_MAX] = {
    [ARENA_WEIGHTS] = "weights",
    [ARENA_GRADS] = "gradients",
    [ARENA_EXP_AVG] = "first moments",
    [ARENA_EXP_AVG_SQ] = "second moments",
    [ARENA_WEIGHT_SLOTS] = "gathered weights",
    [ARENA_GRAD_SLOTS] = "gradients of a unit",
    [ARENA_ACTIVATIONS] = "activations",
    [ARENA_BACKWARD] = "the backward pass",
    [ARENA_LOGITS] = "logits",
    [ARENA_SUMMED] = "sums over tensor ranks",
    [ARENA_WORDS] = "sums of a step",
    [ARENA_WORKSPACE] = "kernels' scratch space",
    [ARENA_BATCH] = "batch and tables",
    [ARENA_HOST] = "the batch on the host",
    [ARENA_SNAPSHOT] = "a checkpoint's copy",
    [ARENA_MASTERS] = "fp32 weights",
};

const char *arenas_kind_word(ArenaKind kind)
{
    return kind > 0 && kind < ARENAS_MAX ? words[kind] : "something unknown";
}

static enum mem_kind place_of(ArenaKind kind)
{
    return kind == ARENA_HOST || kind == ARENA_SNAPSHOT ? MEM_HOST : MEM_DEVICE;
}

static int note_mem(struct arenas *a, void *mem)
{
    if (a->num_mems == a->max_mems) {
        size_t max = a->max_mems > 0 ? 2 * a->max_mems : ARENAS_MAX;
        void **grown = realloc(a->mems, max * sizeof(*grown));
        if (grown == NULL)
            return -1;
        a->mems = grown;
        a->max_mems = max;
    }
    a->mems[a->num_mems++] = mem;
    return 0;
}

static char *allocate(struct arenas *a, ArenaKind kind, size_t bytes, bool shared,
                      struct error *err)
{
    char *mem = shared ? a->world->ops->alloc(a->world, bytes)
                       : a->dev->ops->alloc(a->dev, bytes, place_of(kind));
    if (mem != NULL && !shared && note_mem(a, mem) != 0) {
        a->dev->ops->free(a->dev, mem);
        mem = NULL;
    }
    if (mem == NULL)
        error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for %s (%zu bytes%s)",
                  arenas_kind_word(kind), bytes, shared ? " of shared memory" : "");
    return mem;
}

static int set_aside(struct arenas *a, const Arena *planned, struct error *err)
{
    int kind = (int)planned->kind;
    if (kind <= 0 || kind >= ARENAS_MAX || planned->bytes < 0 || a->pieces[kind].planned ||
        (planned->shared && a->world == NULL))
        return error_set(err, ERR_INVALID_ARGUMENT, "the plan's memory for %s makes no sense",
                         arenas_kind_word(planned->kind));
    struct piece *p = &a->pieces[kind];
    p->planned = true;
    p->shared = planned->shared;
    p->bytes = (size_t)planned->bytes;
    p->mem = allocate(a, planned->kind, p->bytes, p->shared, err);
    return p->mem != NULL ? 0 : -1;
}

int arenas_open(struct arenas **out, const MemoryEstimate *planned, struct device *dev,
                struct comm_world *world, struct error *err)
{
    struct arenas *a = calloc(1, sizeof(*a));
    if (a == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory");
    a->dev = dev;
    a->world = world != NULL && world->ops->alloc != NULL ? world : NULL;
    a->planned = planned != NULL && planned->n_arenas > 0;
    for (size_t i = 0; a->planned && i < planned->n_arenas; i++) {
        if (set_aside(a, planned->arenas[i], err) != 0) {
            arenas_free(a);
            return -1;
        }
    }
    *out = a;
    return 0;
}

void arenas_free(struct arenas *a)
{
    if (a == NULL)
        return;
    for (size_t i = 0; i < a->num_mems; i++)
        a->dev->ops->free(a->dev, a->mems[i]);
    free(a->mems);
    free(a);
}

static void *take_planned(struct piece *p, ArenaKind kind, size_t bytes, bool shared,
                          struct error *err)
{
    if (bytes > p->bytes - p->used || (p->planned && p->shared != shared)) {
        error_set(err, ERR_FAILED_PRECONDITION,
                  "memory for %s: %zu bytes%s are wanted beside %zu, the plan has %zu%s: plan and "
                  "program disagree, which is a mistake in tandem",
                  arenas_kind_word(kind), bytes, shared ? " of shared memory" : "", p->used,
                  p->bytes, p->shared ? " of shared memory" : "");
        return NULL;
    }
    void *mem = p->mem + p->used;
    p->used += bytes;
    return mem;
}

void *arenas_take(struct arenas *a, ArenaKind kind, size_t bytes, bool shared, struct error *err)
{
    ASSERT(kind > 0 && kind < ARENAS_MAX);
    size_t whole = bytes > 0 ? (bytes + 63) / 64 * 64 : 64;
    struct piece *p = &a->pieces[kind];
    shared = shared && a->world != NULL;
    if (whole < bytes) {
        error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for %zu bytes", bytes);
        return NULL;
    }
    if (a->planned)
        return take_planned(p, kind, whole, shared, err);
    void *mem = allocate(a, kind, whole, shared, err);
    if (mem == NULL)
        return NULL;
    p->used += whole;
    p->shared = shared;
    return mem;
}

int arenas_uses(const struct arenas *a, struct arena_use out[ARENAS_MAX])
{
    int num = 0;
    for (int kind = 1; kind < ARENAS_MAX; kind++) {
        const struct piece *p = &a->pieces[kind];
        if (p->planned || p->used > 0)
            out[num++] =
                (struct arena_use){(ArenaKind)kind, p->shared, (int64_t)p->bytes, (int64_t)p->used};
    }
    return num;
}
