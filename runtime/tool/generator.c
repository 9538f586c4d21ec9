#include "runtime/tool/generator.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/fs.h"
#include "base/rng.h"
#include "model/config.h"
#include "model/family.h"
#include "plan/params.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/layers/model.h"

#define CONFIG_MAX_BYTES ((size_t)1 << 20)
#define TABLE_MAX_BYTES ((size_t)1 << 20)
#define WINDOW_MAX 1024

struct generator {
    ModelConfig *config; /* owned */
    struct param_table table;
    struct device *dev;
    const struct kernels *kernels;
    struct stream *stream;
    void *weights;
    int32_t *batch; /* device memory, [window] */
    struct model *model;
    int64_t window;
    int32_t *tokens;      /* [window]: the sequence, its newest part */
    int64_t num, num_run; /* tokens there are; those whose keys and values stand */
    float *logits;        /* [V], of the last position */
    int32_t *order;       /* [V] */
    uint64_t num_draws;
};

static bool has_file(const char *dir, const char *name)
{
    char path[PATH_MAX];
    return fs_join(path, sizeof(path), dir, name) && fs_exists(path);
}

/* A checkpoint's config.json stands in its job's folder: JOB/ckpt/step-... */
static int read_config(struct generator *g, const char *dir, struct error *err)
{
    char path[PATH_MAX], *text;
    size_t len;
    bool checkpoint = has_file(dir, "manifest.json") && !has_file(dir, "config.json");
    if (!fs_join(path, sizeof(path), dir, checkpoint ? "../../config.json" : "config.json"))
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: path too long", dir);
    if (fs_read_file(path, CONFIG_MAX_BYTES, &text, &len, err) != 0)
        return -1;
    int rc = config_parse(path, text, len, &g->config, err);
    free(text);
    return rc != 0 || config_check(path, g->config, err) != 0 ||
                   family_check_built(path, g->config, err) != 0
               ? -1
               : 0;
}

/* The table of a plan with one stage that holds the whole model. */
static int expand_table(struct generator *g, struct error *err)
{
    struct arena arena = {.max_bytes = TABLE_MAX_BYTES};
    ModelFacts facts = MODEL_FACTS__INIT;
    Stage stage = STAGE__INIT, *stages[] = {&stage};
    Plan plan = PLAN__INIT;
    facts.config = g->config;
    stage.layer_end = g->config->num_hidden_layers;
    plan.model = &facts;
    plan.stages = stages;
    plan.n_stages = 1;
    int rc = family_find(g->config->model_type)
                 ->params(g->config, &arena, &plan.params, &plan.n_params, err);
    if (rc == 0)
        rc = params_expand(&plan, 0, &g->table, err);
    arena_free(&arena);
    return rc;
}

static int open_device(struct generator *g, int num_threads, struct error *err)
{
    if (kernels_open(&(struct kernels_options){"cpu", num_threads, 0}, &g->dev, &g->kernels, err) !=
        0)
        return -1;
    return g->dev->ops->stream_new(g->dev, STREAM_INLINE, &g->stream, err);
}

static int alloc_buffers(struct generator *g, struct error *err)
{
    int64_t positions = g->config->max_position_embeddings;
    g->window = positions < WINDOW_MAX ? positions : WINDOW_MAX;
    g->weights =
        g->dev->ops->alloc(g->dev, (size_t)g->table.flat_numel * sizeof(float), MEM_DEVICE);
    g->batch = g->dev->ops->alloc(g->dev, (size_t)g->window * sizeof(*g->batch), MEM_DEVICE);
    g->tokens = calloc((size_t)g->window, sizeof(*g->tokens));
    g->logits = calloc((size_t)g->config->vocab_size, sizeof(*g->logits));
    g->order = calloc((size_t)g->config->vocab_size, sizeof(*g->order));
    if (g->weights == NULL || g->batch == NULL || g->tokens == NULL || g->logits == NULL ||
        g->order == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the model");
    return 0;
}

static int open_model(struct generator *g, const char *dir, struct error *err)
{
    struct ckpt_state state = {
        .table = &g->table, .dtype = DTYPE_F32, .weights = {.data = g->weights}};
    struct model_options options = {
        .config = g->config,
        .table = &g->table,
        .dtype = DTYPE_F32,
        .micro_batch_size = 1,
        .seq_len = g->window,
        .dev = g->dev,
        .kernels = g->kernels,
        .stream = g->stream,
    };
    struct ckpt_meta meta;
    int rc = has_file(dir, "manifest.json") ? ckpt_load(dir, &state, &meta, err)
                                            : ckpt_load_hf(NULL, dir, &state, err);
    if (rc != 0 || model_new(&g->model, &options, err) != 0)
        return -1;
    model_bind_whole(g->model, g->weights, NULL);
    return 0;
}

int generator_open(struct generator **out, const char *dir, int num_threads, struct error *err)
{
    struct generator *g = calloc(1, sizeof(*g));
    if (g == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for a generator");
    if (read_config(g, dir, err) != 0 || expand_table(g, err) != 0 ||
        open_device(g, num_threads, err) != 0 || alloc_buffers(g, err) != 0 ||
        open_model(g, dir, err) != 0) {
        generator_close(g);
        return -1;
    }
    *out = g;
    return 0;
}

void generator_close(struct generator *g)
{
    if (g == NULL)
        return;
    model_free(g->model);
    if (g->weights != NULL)
        g->dev->ops->free(g->dev, g->weights);
    if (g->batch != NULL)
        g->dev->ops->free(g->dev, g->batch);
    if (g->stream != NULL)
        g->dev->ops->stream_free(g->dev, g->stream);
    if (g->dev != NULL)
        g->dev->ops->close(g->dev);
    params_free(&g->table);
    if (g->config != NULL)
        model_config__free_unpacked(g->config, NULL);
    free(g->tokens);
    free(g->logits);
    free(g->order);
    free(g);
}

const ModelConfig *generator_config(const struct generator *g)
{
    return g->config;
}

bool generator_is_end(const struct generator *g, int32_t id)
{
    const ModelConfig *c = generator_config(g);
    bool is_end = c->has_eos_token_id && id == c->eos_token_id;
    for (size_t i = 0; i < c->n_eos_token_ids; i++)
        is_end = is_end || id == c->eos_token_ids[i];
    return is_end;
}

int generator_feed(struct generator *g, const int32_t *ids, int64_t num, struct error *err)
{
    for (int64_t i = 0; i < num; i++) {
        if (ids[i] < 0 || ids[i] >= g->config->vocab_size)
            return error_set(err, ERR_INVALID_ARGUMENT, "token %d: the vocabulary has 0 to %lld",
                             ids[i], (long long)g->config->vocab_size - 1);
        if (g->num == g->window) {
            /* Positions shift, so nothing of the old keys can stay. */
            g->num = g->window / 2;
            memmove(g->tokens, g->tokens + g->window - g->num, (size_t)g->num * sizeof(*g->tokens));
            g->num_run = 0;
        }
        g->tokens[g->num++] = ids[i];
    }
    return 0;
}

/* Runs what was fed since the last pass; leaves the logits behind the last token. */
static int run(struct generator *g, struct error *err)
{
    const struct device_ops *dev = g->dev->ops;
    int64_t num = g->num - g->num_run;
    size_t v = (size_t)g->config->vocab_size;
    if (dev->copy(g->dev, g->stream, g->batch, g->tokens + g->num_run,
                  (size_t)num * sizeof(*g->batch), COPY_TO_DEVICE, err) != 0)
        return -1;
    const struct batch batch = {.ids = g->batch};
    model_set_batch(g->model, &batch);
    model_set_span(g->model, g->num_run, num);
    if (model_forward(g->model, 0, family_num_units(g->config), 0.0, NULL, err) != 0)
        return -1;
    const float *logits = model_logits(g->model);
    if (dev->copy(g->dev, g->stream, g->logits, logits + (size_t)(num - 1) * v, v * sizeof(*logits),
                  COPY_TO_HOST, err) != 0 ||
        dev->stream_sync(g->dev, g->stream, err) != 0)
        return -1;
    g->num_run = g->num;
    return 0;
}

static int by_logit(const void *a, const void *b, void *arg)
{
    const float *logits = arg;
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (logits[i] != logits[j])
        return logits[i] > logits[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

int32_t generator_pick(const float *logits, int64_t v, const struct sampling *sampling, double u,
                       int32_t *order)
{
    for (int64_t i = 0; i < v; i++)
        order[i] = (int32_t)i;
    qsort_r(order, (size_t)v, sizeof(*order), by_logit, (void *)(uintptr_t)logits);
    int64_t num = sampling->top_k > 0 && sampling->top_k < v ? sampling->top_k : v;
    if (sampling->temperature <= 0.0)
        return order[0];
    double sum = 0.0, highest = logits[order[0]];
    for (int64_t i = 0; i < num; i++)
        sum += exp(((double)logits[order[i]] - highest) / sampling->temperature);
    double left = u * sum;
    for (int64_t i = 0; i < num; i++) {
        left -= exp(((double)logits[order[i]] - highest) / sampling->temperature);
        if (left < 0.0)
            return order[i];
    }
    return order[num - 1];
}

int generator_next(struct generator *g, const struct sampling *sampling, int32_t *id,
                   struct error *err)
{
    ASSERT(g->num > 0);
    if (run(g, err) != 0)
        return -1;
    double u = rng_uniform(sampling->seed, rng_stream("generate"), g->num_draws++);
    *id = generator_pick(g->logits, g->config->vocab_size, sampling, u, g->order);
    return generator_feed(g, id, 1, err);
}
