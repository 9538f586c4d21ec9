/* Thousands of random layouts: each is refused in words that name a field, or planned with figures
 * that agree with each other. TANDEM_FULL=1: ten times as many; TANDEM_SEED=N: from another seed.
 */
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "model/family.h"
#include "plan/layout_rules.h"
#include "plan/params.h"
#include "plan/stages.h"
#include "plan_fixture.h"

#define SEED 20240607

static struct spec_unbuilt unbuilt;
static RecomputeSpec recompute;

/* ---- a random job ---- */

static uint64_t seed, draws;

static int64_t below(int64_t n)
{
    /* SplitMix64: each draw a function of seed and count alone. */
    uint64_t x = seed + ++draws * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (int64_t)((x ^ (x >> 31)) % (uint64_t)n);
}

static int64_t one_of(const int64_t *values, size_t num)
{
    return values[below((int64_t)num)];
}
#define ONE_OF(...)                                                                                \
    one_of((const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static char *word_of(const char *const *words, size_t num)
{
    return (char *)words[below((int64_t)num)];
}

static void draw_model(void)
{
    static const char *const families[] = {"llama",   "qwen2",     "qwen3",
                                           "mixtral", "qwen3_moe", "gpt2"};
    c->config.model_type = word_of(families, 6);
    int64_t kv = ONE_OF(1, 2, 3, 4, 8), heads = kv * ONE_OF(1, 2, 3, 4);
    bool gpt = strcmp(c->config.model_type, "gpt2") == 0;
    plan_case_config(c, ONE_OF(1, 2, 3, 5, 8, 13, 16), heads * ONE_OF(2, 8, 16),
                     ONE_OF(24, 96, 120, 136), heads, gpt ? heads : kv, ONE_OF(17, 256, 331, 1000));
    c->config.max_position_embeddings = 4096;
    c->config.tie_word_embeddings = (int)below(2);
    bool moe = strcmp(c->config.model_type, "mixtral") == 0 ||
               strcmp(c->config.model_type, "qwen3_moe") == 0;
    c->config.has_num_experts = c->config.has_num_experts_per_tok = moe;
    c->config.has_moe_intermediate_size = moe;
    c->config.num_experts = moe ? ONE_OF(4, 6, 8, 16) : 0;
    c->config.num_experts_per_tok = moe ? 2 : 0;
    c->config.moe_intermediate_size = moe ? ONE_OF(8, 24, 40) : 0;
}

static void draw_layout(void)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1",
                                            "zb-h2", "zb-v", "dualpipe",    "pipedream"};
    static const char *const modes[] = {"ring", "all_gather", "ulysses"};
    static const char *const precisions[] = {"fp32", "fp64", "bf16", "fp16"};
    static const char *const recomputes[] = {"none", "selective", "full"};
    ParallelSpec *l = &c->layout;
    l->data = ONE_OF(1, 1, 2, 3, 4, 6, 8);
    l->tensor = ONE_OF(1, 1, 2, 3, 4, 8);
    l->pipeline = ONE_OF(1, 1, 2, 3, 4, 5);
    l->context = ONE_OF(1, 1, 2, 3, 4);
    l->expert = ONE_OF(1, 1, 1, 2, 3, 4, 6, 8);
    l->zero_stage = below(4);
    l->shard_size = ONE_OF(0, 0, 0, 1, 2, 3);
    l->sequence_parallel = (int)below(2);
    l->schedule = word_of(schedules, 8);
    l->context_mode = word_of(modes, 3);
    l->virtual_stages = ONE_OF(1, 1, 2, 3);
    if (layout_schedule_is(l, "zb-v") && below(4) > 0) {
        l->virtual_stages = 2;
    }
    /* Most draws keep to the simplest rules, so that many come through to a plan. */
    if (c->config.num_experts == 0 && below(8) > 0) {
        l->expert = 1;
    }
    if (below(8) > 0) {
        l->shard_size = l->zero_stage > 0 && l->data % 2 == 0 ? ONE_OF(0, 1, 2) : 0;
        if (!layout_schedule_is(l, "interleaved")) {
            l->virtual_stages = layout_schedule_is(l, "zb-v") ? 2 : 1;
        }
    }
    l->bucket_mb = (double)ONE_OF(1, 25);
    l->has_bucket_mb = 1;
    c->training.precision = word_of(precisions, 4);
    c->training.grad_dtype = (char *)(below(2) ? "fp32" : "bf16");
    c->training.clip_grad_norm = (double)below(2);
    c->training.has_clip_grad_norm = 1;
    c->training.seq_len = ONE_OF(24, 96, 48, 48, 100);
    c->training.micro_batch_size = ONE_OF(1, 2, 3);
    c->training.global_batch_size =
        l->data * c->training.micro_batch_size * ONE_OF(1, 2, 3, 4, 6, 8, 12, 16);
    recompute.mode = word_of(recomputes, 3);
    recompute.has_every = 1;
    recompute.every = ONE_OF(1, 2, 7);
    c->resources.backend = (char *)"auto";
}

/* ---- what has to agree ---- */

static bool same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* Every parameter of the model lies on some stage, once; under dualpipe twice; a tied embedding on
 * the first and the last. What a rank holds of it times the ranks that share it is all of it. */
static void check_parameters(const Plan *p)
{
    const Mesh *mesh = p->mesh;
    int64_t total = 0;
    for (size_t s = 0; s < p->n_stages; s++) {
        struct param_table t;
        struct error err = {0};
        assert_int_equal(params_expand(p, (int32_t)s, &t, &err), 0);
        assert_int_equal(t.flat_numel, p->stages[s]->flat_numel);
        int64_t end = 0, num_copies = 0;
        for (int32_t i = 0; i < t.num_params; i++) {
            const struct param *q = &t.params[i];
            const ParamDef *def = p->params[q->def_idx];
            assert_true(q->offset >= end && q->offset % PARAMS_ALIGN_NUMEL == 0);
            end = q->offset + q->numel;
            int64_t whole = family_param_numel(def), copies = mesh->tensor;
            if (def->tensor_spread != SPREAD_SHARD) {
                assert_int_equal(q->numel, whole);
            } else if (def->shard_parts > 0 && def->shard_parts < mesh->tensor) {
                assert_int_equal(q->numel * def->shard_parts, whole);
            } else {
                /* Padded by less than a row a rank. */
                int64_t row = whole / def->shape[def->shard_dim];
                assert_true(q->numel * copies >= whole);
                assert_true(q->numel * copies - whole < row * copies);
            }
            total += whole * (q->expert ? mesh->expert : 1);
            /* The head's copy of a tied embedding. */
            bool copy = q->tied && q->unit != 0;
            total -= copy ? whole : 0;
            num_copies += copy;
        }
        int64_t layers = p->model->config->num_hidden_layers;
        assert_int_equal(num_copies, p->model->config->tie_word_embeddings &&
                                         stage_has_head(p->stages[s], layers) &&
                                         !stage_has_embed(p->stages[s], layers));
        assert_true(end <= t.flat_numel);
        params_free(&t);
    }
    bool twice = p->n_stages > 1 && same(p->spec->parallel->layout->schedule, "dualpipe");
    /* Rank 0 and the last hold embedding and head both. */
    if (total != (twice ? 2 : 1) * p->model->num_params) {
        fail_msg("seed %llu: %lld parameters on the ranks, the %s model has %lld",
                 (unsigned long long)seed, (long long)total, p->model->config->model_type,
                 (long long)p->model->num_params);
    }
}

static void check_stages(const Plan *p)
{
    int64_t layers = p->model->config->num_hidden_layers;
    int seen[64] = {0}, wanted = 1;
    if (p->n_stages > 1 && same(p->spec->parallel->layout->schedule, "dualpipe")) {
        wanted = 2;
    }
    assert_int_equal(p->n_stages, p->mesh->pipeline);
    for (size_t s = 0; s < p->n_stages; s++) {
        for (int32_t k = 0; k < stage_num_chunks(p->stages[s]); k++) {
            struct stage_chunk chunk = stage_chunk_at(p->stages[s], k, layers);
            for (int64_t l = chunk.begin; l < chunk.end; l++) {
                seen[l]++;
            }
        }
        int64_t end = 0;
        for (size_t b = 0; b < p->stages[s]->n_buckets; b++) {
            assert_int_equal(p->stages[s]->buckets[b]->offset, end);
            end += p->stages[s]->buckets[b]->numel;
        }
        assert_int_equal(end, p->stages[s]->flat_numel);
    }
    for (int64_t l = 0; l < layers; l++) {
        assert_int_equal(seen[l], wanted);
    }
}

static void check_memory(const MemoryEstimate *m)
{
    const int64_t parts[] = {m->params_bytes,      m->grads_bytes,    m->optimizer_bytes,
                             m->activations_bytes, m->logits_bytes,   m->overhead_bytes,
                             m->snapshot_bytes,    m->gathered_bytes, m->backward_bytes,
                             m->exchange_bytes,    m->workspace_bytes};
    int64_t sum = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_true(parts[i] >= 0);
        sum += parts[i];
    }
    assert_int_equal(sum, m->total_bytes);
    assert_true(m->params_bytes > 0 && m->activations_bytes > 0);
}

/* Only what the runtime can walk through has actions; all else is marked. */
static void check_marks(const Plan *p)
{
    const Mesh *m = p->mesh;
    bool plain = m->pipeline * m->context * m->expert == 1 && p->model->config->num_experts == 0;
    for (size_t s = 0; s < p->n_stages; s++) {
        assert_int_equal(p->stages[s]->n_actions > 0, plain);
    }
    struct error err = {0};
    bool built = family_check_built("model", p->model->config, NULL) == 0;
    bool marked = !built || (!same(p->backend, "cuda") && m->num_ranks > PLAN_HOST_MAX_RANKS);
    assert_int_equal(p->n_unbuilt > 0, marked);
    assert_int_equal(plan_check_built(p, &err) == 0, plain && !marked);
}

static Plan *try_plan(struct error *err)
{
    Plan *plan = NULL;
    *err = (struct error){0};
    return layout_rules_check(&c->spec, err) == 0 && plan_build(&c->input, &plan, err) == 0 ? plan
                                                                                            : NULL;
}

/* One dimension changed: what has to become less does. */
static void check_monotone(const Plan *before)
{
    struct error err;
    int64_t state = before->memory->params_bytes + before->memory->grads_bytes +
                    before->memory->optimizer_bytes;
    /* With several stages another one may become the largest. */
    if (c->layout.zero_stage < 3 && before->n_stages == 1) {
        c->layout.zero_stage++;
        Plan *p = try_plan(&err);
        assert_non_null(p);
        assert_true(p->memory->params_bytes + p->memory->grads_bytes + p->memory->optimizer_bytes <=
                    state);
        plan__free_unpacked(p, NULL);
        c->layout.zero_stage--;
    }
    if (same(recompute.mode, "none") && before->n_stages == 1) {
        recompute.mode = (char *)(below(2) ? "full" : "selective");
        Plan *p = try_plan(&err);
        assert_non_null(p);
        assert_true(p->memory->activations_bytes <= before->memory->activations_bytes);
        plan__free_unpacked(p, NULL);
    } else if (same(recompute.mode, "none")) {
        recompute.mode = (char *)"full";
        Plan *p = try_plan(&err);
        assert_non_null(p);
        assert_true(p->memory->total_bytes <= before->memory->total_bytes);
        plan__free_unpacked(p, NULL);
    }
}

/* "parallel.tensor: 3: has to divide ...; use 2": a field that a job file has, and what's wrong. */
static void check_refusal(const struct error *err)
{
    static const char *const fields[] = {"parallel.", "parallel:", "training.", "resources.",
                                         "memory:"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strncmp(err->text, fields[i], strlen(fields[i])) == 0 && strchr(err->text, ':')) {
            return;
        }
    }
    fail_msg("\"%s\" names no field", err->text);
}

static void random_layouts_are_refused_in_words_or_planned_whole(void **state)
{
    (void)state;
    const char *from = getenv("TANDEM_SEED"), *full = getenv("TANDEM_FULL");
    const char *sample = getenv("TANDEM_SAMPLE");
    uint64_t first = from ? strtoull(from, NULL, 10) : SEED;
    int num = full && same(full, "1") ? 100000 : sample && same(sample, "1") ? 500 : 4000;
    int planned = 0;
    c->input.unbuilt = &unbuilt;
    c->training.recompute = &recompute;
    recompute_spec__init(&recompute);
    c->data_facts.num_tokens = (int64_t)1 << 40;
    plan_case_cluster(c, 160, 8, 8, 0);
    for (int i = 0; i < num; i++) {
        struct error err;
        seed = first + (uint64_t)i;
        draws = 0;
        draw_model();
        draw_layout();
        Plan *p = try_plan(&err);
        if (!p) {
            check_refusal(&err);
            continue;
        }
        planned++;
        check_parameters(p);
        check_stages(p);
        check_memory(p->memory);
        check_marks(p);
        check_monotone(p);
        assert_true(p->cost == NULL || (p->cost->step_s > 0 && p->cost->bubble >= 0 &&
                                        p->cost->bubble < 1 && p->cost->mfu <= 1));
        plan__free_unpacked(p, NULL);
    }
    print_message("seed %llu: %d layouts, %d planned\n", (unsigned long long)first, num, planned);
    assert_true(planned > num / 20);
}

/* Sizes at the ends of their ranges: a plan or a refusal, never an overflow. */
static void extreme_layouts_do_not_overflow(void **state)
{
    (void)state;
    c->input.unbuilt = &unbuilt;
    c->training.recompute = &recompute;
    recompute_spec__init(&recompute);
    plan_case_cluster(c, 4096, 8, 8, 0);
    c->config.max_position_embeddings = INT32_MAX;
    c->data_facts.num_tokens = INT64_MAX;
    for (int i = 0; i < 300; i++) {
        struct error err;
        seed = 7 + (uint64_t)i;
        draws = 0;
        plan_case_config(c, ONE_OF(1, 1 << 10, 1 << 14), ONE_OF(128, 1 << 20), ONE_OF(128, 1 << 22),
                         128, ONE_OF(1, 128), ONE_OF(1, 1 << 24));
        c->layout.data = ONE_OF(1, 64, 131072);
        c->layout.tensor = ONE_OF(1, 128, 131072);
        c->layout.pipeline = ONE_OF(1, 512, 8192);
        c->layout.context = ONE_OF(1, 1 << 10);
        c->layout.zero_stage = below(4);
        c->training.seq_len = ONE_OF(1 << 12, 1 << 24);
        c->training.micro_batch_size = ONE_OF(1, 1 << 14);
        c->training.global_batch_size = ONE_OF(1 << 20, (int64_t)1 << 31);
        if (c->training.global_batch_size % (c->layout.data * c->training.micro_batch_size) != 0) {
            continue;
        }
        if (config_check("config.json", &c->config, &err) != 0) {
            continue;
        }
        Plan *p = try_plan(&err);
        if (p) {
            check_memory(p->memory);
            plan__free_unpacked(p, NULL);
        } else {
            check_refusal(&err);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(random_layouts_are_refused_in_words_or_planned_whole),
        T(extreme_layouts_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
