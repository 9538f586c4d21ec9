#include "plan/layout_rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "model/config.h"

#define NEAR_MAX 64

int64_t layout_micro_batches(const JobSpec *spec)
{
    const TrainingSpec *t = spec->training;
    int64_t at_once;
    if (__builtin_mul_overflow(spec->parallel->layout->data, t->micro_batch_size, &at_once)) {
        return 0;
    }
    return t->global_batch_size / at_once;
}

bool layout_schedule_is(const ParallelSpec *layout, const char *schedule)
{
    return layout->pipeline > 1 && strcmp(layout->schedule, schedule) == 0;
}

int64_t layout_chunks(const ParallelSpec *layout)
{
    if (layout->pipeline == 1) {
        return 1;
    }
    return layout_schedule_is(layout, "dualpipe") ? 2 : layout->virtual_stages;
}

int64_t layout_shards(const ParallelSpec *layout)
{
    if (layout->zero_stage == 0) {
        return 1;
    }
    return layout->shard_size > 0 ? layout->shard_size : layout->data;
}

/* ---- the nearest that would do -------------------------------------------------------------- */

static const char *put_two(char out[NEAR_MAX], int64_t below, int64_t above)
{
    if (below > 0 && above > 0) {
        snprintf(out, NEAR_MAX, "use %" PRId64 " or %" PRId64, below, above);
    } else {
        snprintf(out, NEAR_MAX, "use %" PRId64, below > 0 ? below : above);
    }
    return out;
}

static const char *near_multiples(char out[NEAR_MAX], int64_t value, int64_t of)
{
    int64_t below = value / of * of;
    return put_two(out, below, below + of);
}

/* Divisors of one number, or common ones of several: gcd. */
static int64_t common(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* value is at most 2^17. */
static const char *near_divisors(char out[NEAR_MAX], int64_t value, int64_t of)
{
    int64_t below = value, above = value;
    do {
        below--;
    } while (of % below != 0);
    do {
        above++;
    } while (above <= of && of % above != 0);
    return put_two(out, below, above <= of && above <= 2 * value ? above : 0);
}

static int refuse(struct error *err, const char *field, int64_t value, const char *rule,
                  const char *near)
{
    return error_set(err, ERR_INVALID_ARGUMENT, "%s: %" PRId64 ": %s; %s", field, value, rule,
                     near);
}

/* ---- between fields ------------------------------------------------------------------------- */

static int check_context(const JobSpec *spec, const ParallelSpec *l, struct error *err)
{
    int64_t seq_len = spec->training->seq_len;
    bool ulysses = strcmp(l->context_mode, "ulysses") == 0;
    int64_t pieces = ulysses ? l->context : 2 * l->context;
    if (l->context == 1 || seq_len % pieces == 0) {
        return 0;
    }
    char near[NEAR_MAX], rule[128];
    snprintf(rule, sizeof rule,
             "parallel.context %" PRId64 " (%s) cuts a sample into %" PRId64 " equal pieces",
             l->context, l->context_mode, pieces);
    return refuse(err, "training.seq_len", seq_len, rule, near_multiples(near, seq_len, pieces));
}

/* Can e be carved from data x context? */
static bool carves(const ParallelSpec *l, int64_t e)
{
    return l->data * l->context % e == 0 && (l->context % e == 0 || e % l->context == 0);
}

static int check_expert(const ParallelSpec *l, struct error *err)
{
    int64_t carved = l->data * l->context, e = l->expert;
    if (carves(l, e)) {
        return 0;
    }
    char near[NEAR_MAX], rule[160];
    snprintf(rule, sizeof rule,
             "is carved from data x context = %" PRId64 " x %" PRId64
             ": has to divide the product, and context or be a multiple of it",
             l->data, l->context);
    int64_t below = e - 1, above = e + 1;
    while (!carves(l, below)) {
        below--;
    }
    while (above <= carved && !carves(l, above)) {
        above++;
    }
    return refuse(err, "parallel.expert", e, rule,
                  put_two(near, below, above <= carved ? above : 0));
}

static int check_sharding(const ParallelSpec *l, struct error *err)
{
    char near[NEAR_MAX], rule[96];
    if (l->shard_size > 0 && l->zero_stage == 0) {
        return refuse(err, "parallel.shard_size", l->shard_size,
                      "parallel.zero_stage 0 shards nothing",
                      "leave it out, or use zero_stage 1, 2 or 3");
    }
    if (l->shard_size > 0 && l->data % l->shard_size != 0) {
        snprintf(rule, sizeof rule, "has to divide parallel.data %" PRId64, l->data);
        return refuse(err, "parallel.shard_size", l->shard_size, rule,
                      near_divisors(near, l->shard_size, l->data));
    }
    return 0;
}

static int check_chunks(const ParallelSpec *l, struct error *err)
{
    char rule[96];
    bool zbv = strcmp(l->schedule, "zb-v") == 0;
    if (l->pipeline == 1 && l->virtual_stages > 1) {
        return refuse(err, "parallel.virtual_stages", l->virtual_stages,
                      "there is one stage (parallel.pipeline 1)", "use 1");
    }
    if (l->pipeline > 1 && zbv && l->virtual_stages != 2) {
        return refuse(err, "parallel.virtual_stages", l->virtual_stages,
                      "schedule zb-v has two chunks of layers a stage", "use 2");
    }
    if (l->pipeline > 1 && l->virtual_stages > 1 && !zbv &&
        strcmp(l->schedule, "interleaved") != 0) {
        snprintf(rule, sizeof rule, "schedule %s has one chunk of layers a stage", l->schedule);
        return refuse(err, "parallel.virtual_stages", l->virtual_stages, rule,
                      "use 1, or schedule interleaved");
    }
    if (l->n_layers_per_stage > 0 && (int64_t)l->n_layers_per_stage != l->pipeline) {
        snprintf(rule, sizeof rule, "there are %" PRId64 " stages (parallel.pipeline)",
                 l->pipeline);
        return refuse(err, "parallel.layers_per_stage", (int64_t)l->n_layers_per_stage, rule,
                      "give one number for each, or none");
    }
    return 0;
}

static int check_dualpipe(const JobSpec *spec, const ParallelSpec *l, struct error *err)
{
    char near[NEAR_MAX], rule[128];
    int64_t m = layout_micro_batches(spec), p = l->pipeline;
    if (p % 2 != 0) {
        return refuse(err, "parallel.pipeline", p, "dualpipe wants an even number of stages",
                      near_multiples(near, p, 2));
    }
    if (m >= 2 * p && m % 2 == 0) {
        return 0;
    }
    int64_t wanted = m < 2 * p ? 2 * p : m + 1;
    int64_t batch = wanted * l->data * spec->training->micro_batch_size;
    snprintf(rule, sizeof rule,
             "makes %" PRId64 " micro-batches; dualpipe wants an even number, 2 x pipeline = "
             "%" PRId64 " or more",
             m, 2 * p);
    return refuse(err, "training.global_batch_size", spec->training->global_batch_size, rule,
                  put_two(near, 0, batch));
}

static int check_pipedream(const JobSpec *spec, const ParallelSpec *l, struct error *err)
{
    const struct {
        const char *field;
        int64_t value;
    } alone[] = {{"parallel.tensor", l->tensor - 1},
                 {"parallel.context", l->context - 1},
                 {"parallel.expert", l->expert - 1},
                 {"parallel.zero_stage", l->zero_stage}};
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        if (alone[i].value != 0) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "%s: schedule pipedream goes with pipeline and plain data parallel "
                             "alone; use %d, or another schedule",
                             alone[i].field, i < 3);
        }
    }
    if (spec->training->clip_grad_norm > 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "training.clip_grad_norm: %g: schedule pipedream has no moment at which "
                         "all gradients of a step are there; use 0, or another schedule",
                         spec->training->clip_grad_norm);
    }
    return 0;
}

static int check_schedule(const JobSpec *spec, const ParallelSpec *l, struct error *err)
{
    if (check_chunks(l, err)) {
        return -1;
    }
    int64_t m = layout_micro_batches(spec), p = l->pipeline;
    if (layout_schedule_is(l, "interleaved") && m % p != 0) {
        char near[NEAR_MAX], rule[128];
        snprintf(rule, sizeof rule,
                 "makes %" PRId64 " micro-batches; interleaved wants a multiple of "
                 "parallel.pipeline %" PRId64,
                 m, p);
        int64_t at_once = l->data * spec->training->micro_batch_size;
        return refuse(err, "training.global_batch_size", spec->training->global_batch_size, rule,
                      near_multiples(near, m * at_once, p * at_once));
    }
    if (layout_schedule_is(l, "dualpipe")) {
        return check_dualpipe(spec, l, err);
    }
    return layout_schedule_is(l, "pipedream") ? check_pipedream(spec, l, err) : 0;
}

int layout_rules_check(const JobSpec *spec, struct error *err)
{
    const ParallelSpec *l = spec->parallel->layout;
    return check_context(spec, l, err) || check_expert(l, err) || check_sharding(l, err) ||
                   check_schedule(spec, l, err)
               ? -1
               : 0;
}

/* ---- with the model ------------------------------------------------------------------------- */

/* t divides heads and ffn, and divides the KV heads or is a multiple of them. */
static int check_tensor(const ParallelSpec *l, const ModelConfig *c, struct error *err)
{
    int64_t t = l->tensor, kv = c->num_key_value_heads;
    int64_t ffn = c->num_experts > 0 ? c->moe_intermediate_size : c->intermediate_size;
    if (c->num_attention_heads % t == 0 && ffn % t == 0 && (kv % t == 0 || t % kv == 0)) {
        return 0;
    }
    char near[NEAR_MAX], rule[192];
    snprintf(rule, sizeof rule, "has to divide the model's %s %" PRId64 " and %s %" PRId64,
             config_key(c, "num_attention_heads"), c->num_attention_heads,
             c->num_experts > 0 ? "moe_intermediate_size" : config_key(c, "intermediate_size"),
             ffn);
    if (kv != c->num_attention_heads) {
        size_t len = strlen(rule);
        snprintf(rule + len, sizeof rule - len,
                 ", and divide or be a multiple of num_key_value_heads %" PRId64, kv);
    }
    int64_t all = common(c->num_attention_heads, ffn), below = t - 1, above = t + 1;
    while (all % below != 0 || (kv % below != 0 && below % kv != 0)) {
        below--;
    }
    while (above <= all && (all % above != 0 || (kv % above != 0 && above % kv != 0))) {
        above++;
    }
    return refuse(err, "parallel.tensor", t, rule, put_two(near, below, above <= all ? above : 0));
}

static int check_ulysses(const ParallelSpec *l, const ModelConfig *c, struct error *err)
{
    int64_t heads = c->num_attention_heads / l->tensor;
    if (l->context == 1 || strcmp(l->context_mode, "ulysses") != 0 || heads % l->context == 0) {
        return 0;
    }
    char near[NEAR_MAX], rule[128];
    snprintf(rule, sizeof rule,
             "ulysses deals out the %" PRId64 " attention heads of a tensor rank: has to divide "
             "them",
             heads);
    return refuse(err, "parallel.context", l->context, rule,
                  near_divisors(near, l->context, heads));
}

static int check_experts(const ParallelSpec *l, const ModelConfig *c, struct error *err)
{
    if (l->expert == 1 || (c->num_experts > 0 && c->num_experts % l->expert == 0)) {
        return 0;
    }
    if (c->num_experts == 0) {
        return refuse(err, "parallel.expert", l->expert, "the model has no experts", "use 1");
    }
    char near[NEAR_MAX], rule[96];
    snprintf(rule, sizeof rule, "has to divide the model's %" PRId64 " experts", c->num_experts);
    int64_t below = l->expert - 1, above = l->expert + 1;
    while (below > 1 && (c->num_experts % below != 0 || !carves(l, below))) {
        below--;
    }
    while (above <= c->num_experts && (c->num_experts % above != 0 || !carves(l, above))) {
        above++;
    }
    return refuse(err, "parallel.expert", l->expert, rule,
                  put_two(near, below, above <= c->num_experts ? above : 0));
}

/* Of several chunks a rank, the first and the last of all may be embedding or head alone. */
static int check_stages(const ParallelSpec *l, const ModelConfig *c, struct error *err)
{
    int64_t p = l->pipeline, v = l->virtual_stages, layers = c->num_hidden_layers;
    char near[NEAR_MAX], rule[128];
    if (p > layers) {
        snprintf(rule, sizeof rule, "the model has %" PRId64 " layers", layers);
        return refuse(err, "parallel.pipeline", p, rule, put_two(near, layers, 0));
    }
    if (v > 1 && p * v > layers + 2) {
        snprintf(rule, sizeof rule,
                 "x parallel.pipeline %" PRId64 " is more chunks than the model has layers "
                 "(%" PRId64 ")",
                 p, layers);
        return refuse(err, "parallel.virtual_stages", v, rule, put_two(near, (layers + 2) / p, 0));
    }
    return 0;
}

static int check_layers_per_stage(const ParallelSpec *l, const ModelConfig *c, struct error *err)
{
    int64_t sum = 0, v = layout_schedule_is(l, "dualpipe") ? 1 : l->virtual_stages;
    for (size_t i = 0; i < l->n_layers_per_stage; i++) {
        int64_t n = l->layers_per_stage[i];
        bool end = i == 0 || i + 1 == l->n_layers_per_stage;
        if (n < (end && v > 1 ? v - 1 : v) || n > c->num_hidden_layers) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "parallel.layers_per_stage.%zu: %" PRId64 ": a stage holds %" PRId64
                             " layers or more; the model has %" PRId64,
                             i, n, v, c->num_hidden_layers);
        }
        sum += n;
    }
    if (l->n_layers_per_stage == 0 || sum == c->num_hidden_layers) {
        return 0;
    }
    return error_set(err, ERR_INVALID_ARGUMENT,
                     "parallel.layers_per_stage: they make %" PRId64 " layers, the model has "
                     "%" PRId64,
                     sum, c->num_hidden_layers);
}

int layout_rules_check_model(const JobSpec *spec, const ModelConfig *config, struct error *err)
{
    const ParallelSpec *l = spec->parallel->layout;
    return check_tensor(l, config, err) || check_ulysses(l, config, err) ||
                   check_experts(l, config, err) || check_stages(l, config, err) ||
                   check_layers_per_stage(l, config, err)
               ? -1
               : 0;
}
