#include "server/sched/want.h"

#include <stdlib.h>
#include <string.h>

struct want_table {
    const struct fabric *f;
    int64_t *sizes; /* of device memories, ascending, each once */
    int32_t num_sizes;
    struct want **wants; /* by number */
    uint64_t *hashes;
    int32_t num, cap;
    int32_t *slots; /* number + 1; 0 = empty */
    uint32_t num_slots;
};

static void *must(void *memory)
{
    ASSERT(memory);
    return memory;
}

static int compare_sizes(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

struct want_table *want_table_new(const struct fabric *f)
{
    struct want_table *t = must(calloc(1, sizeof *t));
    t->f = f;
    t->sizes = must(malloc(((size_t)f->num_devices + 1) * sizeof *t->sizes));
    for (int32_t i = 0; i < f->num_devices; i++) {
        int64_t size = f->devices[i].mem_bytes;
        if (size > 0 && (t->num_sizes == 0 || t->sizes[t->num_sizes - 1] != size)) {
            t->sizes[t->num_sizes++] = size;
        }
    }
    qsort(t->sizes, (size_t)t->num_sizes, sizeof *t->sizes, compare_sizes);
    int32_t num = 0;
    for (int32_t i = 0; i < t->num_sizes; i++) {
        if (num == 0 || t->sizes[num - 1] != t->sizes[i]) {
            t->sizes[num++] = t->sizes[i];
        }
    }
    t->num_sizes = num;
    return t;
}

static void want_free(struct want *w)
{
    for (size_t i = 0; i < w->num_nodes; i++) {
        free(w->nodes[i]);
    }
    free(w->nodes);
    free(w->type);
    free(w->suits);
    free(w);
}

void want_table_clear(struct want_table *t)
{
    for (int32_t i = 0; i < t->num; i++) {
        want_free(t->wants[i]);
    }
    t->num = 0;
    if (t->slots) {
        memset(t->slots, 0, t->num_slots * sizeof *t->slots);
    }
}

void want_table_free(struct want_table *t)
{
    if (!t) {
        return;
    }
    want_table_clear(t);
    free(t->wants);
    free(t->hashes);
    free(t->slots);
    free(t->sizes);
    free(t);
}

int32_t want_table_num(const struct want_table *t)
{
    return t->num;
}

struct want *want_table_get(const struct want_table *t, int32_t want)
{
    return t->wants[want];
}

/* The least memory of a device that is enough: what else is asked for makes no difference. */
static int64_t enough(const struct want_table *t, int64_t mem_bytes)
{
    if (mem_bytes <= 0) {
        return 0;
    }
    for (int32_t i = 0; i < t->num_sizes; i++) {
        if (t->sizes[i] >= mem_bytes) {
            return t->sizes[i];
        }
    }
    return INT64_MAX;
}

static const char *type_of(const struct place_request *r)
{
    return r->type ? r->type : "any";
}

static int32_t tensor_of(const struct place_request *r)
{
    return r->tensor > 0 ? r->tensor : 1;
}

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static uint64_t mix_text(uint64_t h, const char *text)
{
    for (; *text; text++) {
        h = (h ^ (uint8_t)*text) * 0x100000001b3u;
    }
    return mix(h, 0xff);
}

static uint64_t hash_of(const struct place_request *r, int64_t mem_bytes)
{
    uint64_t h = mix_text(0xcbf29ce484222325u, type_of(r));
    h = mix(h, (uint64_t)mem_bytes);
    h = mix(h, (uint64_t)tensor_of(r) << 3 | (uint64_t)r->one_node << 2 |
                   (uint64_t)r->cpu_only << 1 | r->gpu_only);
    h = mix(h, (uint64_t)r->capability);
    for (size_t i = 0; i < r->num_nodes; i++) {
        h = mix_text(h, r->nodes[i]);
    }
    return h;
}

static bool same(const struct want *w, const struct place_request *r, int64_t mem_bytes)
{
    if (w->num_nodes != r->num_nodes || w->mem_bytes != mem_bytes || w->tensor != tensor_of(r) ||
        w->cpu_only != r->cpu_only || w->gpu_only != r->gpu_only || w->one_node != r->one_node ||
        w->capability != r->capability || strcmp(w->type, type_of(r)) != 0) {
        return false;
    }
    for (size_t i = 0; i < r->num_nodes; i++) {
        if (strcmp(w->nodes[i], r->nodes[i]) != 0) {
            return false;
        }
    }
    return true;
}

static void add_range(const struct fabric *f, struct want *w, int32_t first, int32_t num)
{
    bool any = strcmp(w->type, "any") == 0;
    int32_t type = any ? -1 : fabric_find_type(f, w->type);
    for (int32_t i = first; i < first + num; i++) {
        const struct fabric_device *d = &f->devices[i];
        bool is_cpu = f->types[d->type].is_cpu;
        int32_t capability = f->types[d->type].capability;
        if ((any || d->type == type) && !(w->cpu_only && !is_cpu) && !(w->gpu_only && is_cpu) &&
            (capability == 0 || capability >= w->capability) &&
            (d->mem_bytes == 0 || d->mem_bytes >= w->mem_bytes)) {
            w->num_suits += !want_suits(w, i);
            w->suits[i / 64] |= (uint64_t)1 << (i % 64);
        }
    }
}

static struct want *want_new(const struct fabric *f, const struct place_request *r,
                             int64_t mem_bytes)
{
    struct want *w = must(calloc(1, sizeof *w));
    w->type = must(strdup(type_of(r)));
    w->nodes = must(calloc(r->num_nodes + 1, sizeof *w->nodes));
    w->num_nodes = r->num_nodes;
    w->cpu_only = r->cpu_only;
    w->gpu_only = r->gpu_only;
    w->one_node = r->one_node;
    w->mem_bytes = mem_bytes;
    w->tensor = tensor_of(r);
    w->capability = r->capability;
    w->suits = must(calloc((size_t)f->num_devices / 64 + 1, sizeof *w->suits));
    for (size_t i = 0; i < r->num_nodes; i++) {
        w->nodes[i] = must(strdup(r->nodes[i]));
        int32_t node = fabric_find_node(f, r->nodes[i]);
        if (node >= 0) {
            add_range(f, w, f->nodes[node].first_device, f->nodes[node].num_devices);
        }
    }
    if (r->num_nodes == 0) {
        add_range(f, w, 0, f->num_devices);
    }
    return w;
}

static void grow(struct want_table *t)
{
    if (t->num == t->cap) {
        t->cap = t->cap ? t->cap * 2 : 64;
        t->wants = must(realloc(t->wants, (size_t)t->cap * sizeof(struct want *)));
        t->hashes = must(realloc(t->hashes, (size_t)t->cap * sizeof *t->hashes));
    }
    if ((uint32_t)t->num * 2 < t->num_slots) {
        return;
    }
    free(t->slots);
    t->num_slots = t->num_slots ? t->num_slots * 2 : 256;
    t->slots = must(calloc(t->num_slots, sizeof *t->slots));
    for (int32_t i = 0; i < t->num; i++) {
        uint32_t k = (uint32_t)t->hashes[i] & (t->num_slots - 1);
        while (t->slots[k]) {
            k = (k + 1) & (t->num_slots - 1);
        }
        t->slots[k] = i + 1;
    }
}

int32_t want_table_add(struct want_table *t, const struct place_request *r)
{
    int64_t mem_bytes = enough(t, r->mem_bytes);
    uint64_t hash = hash_of(r, mem_bytes);
    grow(t);
    uint32_t k = (uint32_t)hash & (t->num_slots - 1);
    for (; t->slots[k]; k = (k + 1) & (t->num_slots - 1)) {
        int32_t i = t->slots[k] - 1;
        if (t->hashes[i] == hash && same(t->wants[i], r, mem_bytes)) {
            return i;
        }
    }
    t->wants[t->num] = want_new(t->f, r, mem_bytes);
    t->hashes[t->num] = hash;
    t->slots[k] = ++t->num;
    return t->num - 1;
}

bool want_has_failed(const struct want *w, uint64_t mask, int32_t num)
{
    for (int32_t i = 0; i < w->num_fails; i++) {
        if ((w->fails[i].mask & ~mask) == 0 && num >= w->fails[i].num) {
            return true;
        }
    }
    return false;
}

void want_failed(struct want *w, uint64_t mask, int32_t num)
{
    for (int32_t i = 0; i < w->num_fails; i++) {
        if (w->fails[i].mask == mask) {
            w->fails[i].num = num < w->fails[i].num ? num : w->fails[i].num;
            return;
        }
    }
    if (w->num_fails < WANT_MAX_FAILS) {
        w->fails[w->num_fails++] = (struct want_fail){.mask = mask, .num = num};
    }
}

bool want_has_tried(const struct want *w, const struct want_try *t)
{
    for (int32_t i = 0; i < w->num_tries; i++) {
        const struct want_try *k = &w->tries[i];
        if (k->tenant == t->tenant && t->priority <= k->priority && t->num >= k->num &&
            (k->reclaims || !t->reclaims)) {
            return true;
        }
    }
    return false;
}

void want_tried(struct want *w, const struct want_try *t)
{
    for (int32_t i = 0; i < w->num_tries; i++) {
        struct want_try *k = &w->tries[i];
        if (k->tenant == t->tenant && k->priority <= t->priority && k->num >= t->num &&
            (t->reclaims || !k->reclaims)) {
            *k = *t;
            return;
        }
    }
    if (w->num_tries < WANT_MAX_TRIES) {
        w->tries[w->num_tries++] = *t;
    }
}
