#include "tests/unit/ckpt_layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/rng.h"
#include "model/config.h"
#include "model/family.h"
#include "plan/pieces.h"
#include "tests/unit/ckpt_fixture.h"

#define NOTHING 0xA5 /* each byte of a buffer that nobody has filled */

const struct layout_model layout_models[LAYOUT_NUM_MODELS] = {
    {"llama-tiny", 6, 3, 331}, {"llama-tied", 4, 1, 5},  {"qwen2-tiny", 8, 2, 37},
    {"qwen3-tiny", 12, 4, 41}, {"gpt2-tiny", 6, 6, 331}, {"gpt2-tiny", 8, 8, 3},
    {"llama-tiny", 0, 0, 0},   {"qwen3-tiny", 5, 5, 29},
};

/* ---- model -------------------------------------------------------------------------------------
 */

static ModelConfig *read_config(const struct layout_model *m)
{
    char path[300], *text;
    size_t len;
    ModelConfig *c = NULL;
    struct error err = {0};
    snprintf(path, sizeof path, "%s/tests/golden/%s/config.json", TANDEM_SOURCE_DIR, m->family);
    if (fs_read_file(path, 1 << 20, &text, &len, &err) != 0 ||
        config_parse(path, text, len, &c, &err) != 0) {
        fail_msg("%s", err.text);
    }
    free(text);
    if (m->heads) {
        c->num_attention_heads = m->heads;
        c->num_key_value_heads = m->kv_heads;
        c->head_dim = 2;
        c->hidden_size = 2 * m->heads;
        c->intermediate_size = 14;
        c->vocab_size = m->vocab_size;
    }
    return c;
}

static void expand(struct layout *l)
{
    ModelFacts facts = MODEL_FACTS__INIT;
    Stage stage = STAGE__INIT, *stages[] = {&stage};
    Mesh mesh = MESH__INIT;
    Plan plan = PLAN__INIT;
    struct error err = {0};
    facts.config = l->config;
    stage.layer_end = l->config->num_hidden_layers;
    mesh.tensor = mesh.num_ranks = l->spec.tensor;
    plan.model = &facts;
    plan.mesh = &mesh;
    plan.stages = stages;
    plan.n_stages = 1;
    if (family_find(l->config->model_type)
                ->params(l->config, &l->arena, &plan.params, &plan.n_params, &err) != 0 ||
        params_expand(&plan, 0, &l->table, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

/* ---- layout ------------------------------------------------------------------------------------
 */

struct layout_spec layout_draw(const struct layout_model *model, uint64_t seed)
{
    static const int32_t tensors[] = {1, 1, 2, 3, 4, 5, 6, 8};
    struct layout_spec s = {
        .model = *model,
        .dtype = DTYPE_F32,
        .moments = true,
        .tensor = tensors[rng_u64(seed, 1, 0) % 8],
        .shards = 1 + (int32_t)(rng_u64(seed, 1, 1) % 4),
        .replicas = 1 + (int32_t)(rng_u64(seed, 1, 2) % 3),
        .zero_stage = (int32_t)(rng_u64(seed, 1, 3) % 4),
        .num_buckets = 1 + (int32_t)(rng_u64(seed, 1, 4) % LAYOUT_MAX_BUCKETS),
        .cuts = seed,
    };
    if (s.zero_stage == 0) {
        s.shards = 1;
    }
    while (s.tensor * s.shards * s.replicas > LAYOUT_MAX_RANKS) {
        s.replicas--;
    }
    return s;
}

void layout_text(const struct layout_spec *s, char *out, size_t size)
{
    snprintf(out, size, "%s (%lld heads) tensor %d, shards %d x replicas %d, stage %d, %d buckets",
             s->model.family, (long long)s->model.heads, s->tensor, s->shards, s->replicas,
             s->zero_stage, s->num_buckets);
}

/* Ends of buckets in the flat layout, ascending, anywhere. */
static void cut_buckets(const struct layout *l, int64_t ends[LAYOUT_MAX_BUCKETS])
{
    int32_t n = l->spec.num_buckets;
    for (int32_t b = 0; b < n; b++) {
        int64_t width = l->table.flat_numel / n;
        int64_t jitter = (int64_t)(rng_u64(l->spec.cuts, 2, (uint64_t)b) % (uint64_t)width);
        ends[b] = b == n - 1 ? l->table.flat_numel : b * width + jitter;
    }
}

/* Where slice i of `shards` of a bucket begins; slices may be empty. */
static int64_t slice_begin(const struct layout *l, int32_t bucket, int64_t begin, int64_t end,
                           int32_t i)
{
    int64_t numel = end - begin, even = numel * i / l->spec.shards;
    if (i == 0 || i == l->spec.shards) {
        return begin + even;
    }
    /* Up to half a slice to and fro. */
    int64_t room = numel / l->spec.shards / 2 + 1;
    uint64_t key = (uint64_t)(bucket * 64 + i);
    return begin + even - (int64_t)(rng_u64(l->spec.cuts, 3, key) % (uint64_t)room);
}

static int64_t cut_slices(const struct layout *l, int32_t shard, struct flat_range *slices)
{
    int64_t ends[LAYOUT_MAX_BUCKETS], at = 0;
    cut_buckets(l, ends);
    for (int32_t b = 0; b < l->spec.num_buckets; b++) {
        int64_t begin = b ? ends[b - 1] : 0;
        int64_t lo = slice_begin(l, b, begin, ends[b], shard);
        int64_t hi = slice_begin(l, b, begin, ends[b], shard + 1);
        slices[b] = (struct flat_range){lo, hi - lo, at};
        at += hi - lo;
    }
    return at;
}

static struct ckpt_part new_part(const struct layout *l, struct layout_rank *r, int64_t sliced,
                                 bool cut, int64_t *numel)
{
    *numel = cut ? sliced : l->table.flat_numel;
    size_t bytes = (size_t)*numel * dtype_size(l->spec.dtype);
    struct ckpt_part part = {.data = malloc(bytes + 1)};
    assert_non_null(part.data);
    memset(part.data, NOTHING, bytes);
    if (cut) {
        part.ranges = r->slices;
        part.num_ranges = l->spec.num_buckets;
    }
    return part;
}

static void new_rank(struct layout *l, int32_t idx)
{
    struct layout_rank *r = &l->ranks[idx];
    const struct layout_spec *s = &l->spec;
    int32_t shard = idx / s->tensor % s->shards;
    int64_t sliced = cut_slices(l, shard, r->slices);
    r->state = (struct ckpt_state){
        .table = &l->table,
        .dtype = s->dtype,
        .tensor = s->tensor,
        .tensor_idx = idx % s->tensor,
        .replica_idx = idx / s->tensor / s->shards,
        .num_replicas = s->replicas,
    };
    r->state.weights = new_part(l, r, sliced, s->zero_stage == 3, &r->numel[0]);
    if (s->moments) {
        r->state.exp_avg = new_part(l, r, sliced, s->zero_stage > 0, &r->numel[1]);
        r->state.exp_avg_sq = new_part(l, r, sliced, s->zero_stage > 0, &r->numel[2]);
    }
    if (s->zero_stage > 0) {
        r->state.owned = r->slices;
        r->state.num_owned = s->num_buckets;
    }
}

void layout_new(struct layout *l, const struct layout_spec *spec)
{
    *l = (struct layout){.spec = *spec, .config = read_config(&spec->model)};
    expand(l);
    l->num_ranks = spec->tensor * spec->shards * spec->replicas;
    assert_true(l->num_ranks <= LAYOUT_MAX_RANKS && spec->num_buckets <= LAYOUT_MAX_BUCKETS);
    for (int32_t i = 0; i < l->num_ranks; i++) {
        new_rank(l, i);
    }
}

void layout_free(struct layout *l)
{
    for (int32_t i = 0; i < l->num_ranks; i++) {
        free(l->ranks[i].state.weights.data);
        free(l->ranks[i].state.exp_avg.data);
        free(l->ranks[i].state.exp_avg_sq.data);
    }
    params_free(&l->table);
    arena_free(&l->arena);
    model_config__free_unpacked(l->config, NULL);
}

/* ---- values ------------------------------------------------------------------------------------
 */

/* By element of the flat layout: which of which tensor it is. */
struct place {
    int32_t param; /* -1: padding */
    int64_t whole;
};

struct noting {
    struct place *places;
    int64_t offset;
    int32_t param;
};

static int note(void *arg, const struct piece *piece, struct error *err)
{
    const struct noting *n = arg;
    (void)err;
    for (int64_t i = 0; i < piece->numel; i++) {
        n->places[n->offset + piece->local + i] = (struct place){n->param, piece->whole + i};
    }
    return 0;
}

static struct place *find_places(const struct layout *l, int64_t tensor_idx)
{
    struct place *places = calloc((size_t)l->table.flat_numel, sizeof *places);
    assert_non_null(places);
    for (int64_t i = 0; i < l->table.flat_numel; i++) {
        places[i].param = -1;
    }
    for (int32_t k = 0; k < l->table.num_params; k++) {
        const struct param *p = &l->table.params[k];
        struct noting n = {places, p->offset, k};
        pieces_each(p, l->spec.tensor, tensor_idx, 0, p->numel, note, &n, NULL);
    }
    return places;
}

/* Any bits, but no signalling NaN, which turns quiet when a processor touches it. */
static uint64_t value_of(const struct layout *l, const struct place *place, int part, uint64_t seed)
{
    uint64_t stream = rng_stream(l->table.params[place->param].name) + (uint64_t)part;
    uint64_t bits = rng_u64(seed, stream, (uint64_t)place->whole);
    return l->spec.dtype == DTYPE_F64 ? bits | (uint64_t)1 << 51
                                      : (bits & 0xFFFFFFFFu) | (uint64_t)1 << 22;
}

/* Sets (bits go in) or compares one buffer; returns NULL or what differs. */
static const char *walk_part(const struct layout *l, const struct ckpt_part *part, int idx,
                             const struct place *places, uint64_t seed, bool set, bool filled)
{
    static char text[300];
    struct flat_range all = {0, l->table.flat_numel, 0};
    const struct flat_range *ranges = part->ranges ? part->ranges : &all;
    int32_t num = part->ranges ? part->num_ranges : 1;
    size_t size = dtype_size(l->spec.dtype);
    for (int32_t r = 0; r < num; r++) {
        for (int64_t i = 0; i < ranges[r].numel; i++) {
            const struct place *place = &places[ranges[r].begin + i];
            uint64_t want, has = 0;
            memset(&want, NOTHING, sizeof want);
            if (place->param >= 0 && filled) {
                want = value_of(l, place, idx, seed);
            }
            char *at = (char *)part->data + (size_t)(ranges[r].at + i) * size;
            if (set && place->param >= 0) {
                memcpy(at, &want, size);
            }
            memcpy(&has, at, size);
            if (memcmp(&has, &want, size) != 0) {
                snprintf(text, sizeof text, "part %d: element %lld of %s is %llx", idx,
                         (long long)place->whole,
                         place->param < 0 ? "padding" : l->table.params[place->param].name,
                         (unsigned long long)has);
                return text;
            }
        }
    }
    return NULL;
}

static const char *walk(const struct layout *l, uint64_t seed, bool set, bool weights_only)
{
    const char *wrong = NULL;
    for (int32_t t = 0; t < l->spec.tensor && !wrong; t++) {
        struct place *places = find_places(l, t);
        for (int32_t i = t; i < l->num_ranks && !wrong; i += l->spec.tensor) {
            const struct ckpt_state *s = &l->ranks[i].state;
            const struct ckpt_part *parts[] = {&s->weights, &s->exp_avg, &s->exp_avg_sq};
            for (int k = 0; k < 3 && parts[k]->data && !wrong; k++) {
                wrong = walk_part(l, parts[k], k, places, seed, set, k == 0 || !weights_only);
            }
        }
        free(places);
    }
    return wrong;
}

void layout_fill(struct layout *l, uint64_t seed)
{
    assert_null(walk(l, seed, true, false));
}

const char *layout_differs(const struct layout *l, uint64_t seed, bool weights_only)
{
    return walk(l, seed, false, weights_only);
}

/* ---- checkpoints -------------------------------------------------------------------------------
 */

int layout_save(const struct layout *l, const char *parent, const struct ckpt_meta *meta, char *dir,
                size_t dir_size, struct error *err)
{
    struct ckpt_save *saves[LAYOUT_MAX_RANKS] = {0};
    int32_t n = l->num_ranks, first = (int32_t)(rng_u64(l->spec.cuts, 4, 0) % (uint64_t)n);
    int64_t bytes;
    int rc = 0;
    for (int32_t i = 0; i < n && rc == 0; i++) {
        int32_t w = (first + i) % n;
        rc = ckpt_save_write(&saves[w], parent, &l->ranks[w].state, meta, w, n, err);
    }
    for (int32_t i = 0; i < n && rc == 0; i++) {
        rc = ckpt_save_seal(saves[i], err);
    }
    for (int32_t i = 0; i < n; i++) {
        ckpt_save_free(saves[i]);
    }
    return rc == 0 ? ckpt_commit(parent, meta, n, dir, dir_size, &bytes, err) : rc;
}

int layout_load(struct layout *l, const char *dir, struct ckpt_meta *meta, struct error *err)
{
    for (int32_t i = 0; i < l->num_ranks; i++) {
        if (ckpt_load_share(dir, &l->ranks[i].state, meta, i, l->num_ranks, err) != 0) {
            return -1;
        }
    }
    return 0;
}

/* ---- for tests ---------------------------------------------------------------------------------
 */

uint64_t layout_first_seed(void)
{
    const char *text = getenv("TANDEM_SEED");
    return text && *text ? strtoull(text, NULL, 10) : 1;
}

struct layout_spec layout_one_rank(const struct layout_model *model, enum dtype dtype, bool moments)
{
    return (struct layout_spec){.model = *model,
                                .dtype = dtype,
                                .moments = moments,
                                .tensor = 1,
                                .shards = 1,
                                .replicas = 1,
                                .num_buckets = 1};
}

void layout_save_ok(const struct layout *l, const char *root, int64_t step, char dir[256])
{
    struct ckpt_meta meta = fixture_meta(step, 1);
    struct error err = {0};
    char parent[128], text[200];
    snprintf(parent, sizeof parent, "%s/ckpt", root);
    if (layout_save(l, parent, &meta, dir, 256, &err) != 0) {
        layout_text(&l->spec, text, sizeof text);
        fail_msg("%s: %s", text, err.text);
    }
}

void layout_load_equals(const struct layout_spec *spec, const char *dir, uint64_t seed,
                        const char *from)
{
    struct layout l;
    struct ckpt_meta meta;
    struct error err = {0};
    char text[200];
    layout_new(&l, spec);
    layout_text(spec, text, sizeof text);
    if (layout_load(&l, dir, &meta, &err) != 0) {
        fail_msg("%s -> %s: %s", from, text, err.text);
    }
    const char *wrong = layout_differs(&l, seed, false);
    if (wrong) {
        fail_msg("%s -> %s: %s", from, text, wrong);
    }
    layout_free(&l);
}
