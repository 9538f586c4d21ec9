#include "plan/cost.h"

#include <math.h>
#include <string.h>

#include "model/family.h"
#include "plan/layout_rules.h"
#include "plan/memory.h"
#include "plan/plan.h"
#include "plan/schedule.h"
#include "plan/stages.h"

/* Share of the dense peak that matrix products and attention of a large model reach together,
 * before any waiting: what public runs on one device or one node show, not fitted to any larger
 * one. */
static double cost_efficiency(const char *device_type)
{
    static const struct {
        const char *type;
        double share;
    } table[] = {{"a100", 0.70}, {"h100", 0.60},  {"h200", 0.60},
                 {"b200", 0.60}, {"gb200", 0.60}, {"cpu", PLAN_ASSUMED_MFU}};
    for (size_t i = 0; device_type && i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].type, device_type) == 0) {
            return table[i].share;
        }
    }
    return PLAN_ASSUMED_MFU;
}

/* Forward, input gradient and weight gradient take a third each (F = B = W). Source: as
 * memory_in_flight; DualPipe's (p / 2 - 1)(F&B + B - 2 W) with F&B = F + B + W. */
double cost_bubble_ratio(const JobSpec *spec)
{
    const ParallelSpec *l = spec->parallel->layout;
    double m = (double)layout_micro_batches(spec), p = (double)l->pipeline;
    if (l->pipeline == 1 || layout_schedule_is(l, "pipedream") || layout_schedule_is(l, "zb-h2") ||
        layout_schedule_is(l, "zb-v")) {
        return 0;
    }
    if (layout_schedule_is(l, "interleaved")) {
        return (p - 1) / (m * (double)l->virtual_stages);
    }
    if (layout_schedule_is(l, "zb-h1")) {
        return (p - 1) / (3 * m);
    }
    if (layout_schedule_is(l, "dualpipe")) {
        return (p / 2 - 1) * 2 / (3 * m);
    }
    return (p - 1) / m;
}

double cost_all_reduce_bytes(double n, double buffer_bytes)
{
    return 2 * (n - 1) / n * buffer_bytes;
}

/* ---- what the formulas share ---------------------------------------------------------------- */

struct costing {
    const Plan *plan;
    const ModelConfig *config;
    const ParallelSpec *layout;
    double rate;                         /* FLOP/s of a rank */
    double m;                            /* micro-batches */
    double rows;                         /* of a micro-batch on one rank */
    double size;                         /* bytes of an element */
    double attention_s, block_s, head_s; /* forward and backward, of one micro-batch on a rank */
};

static const AxisGroup *find_group(const struct costing *c, Axis axis)
{
    for (size_t i = 0; i < c->plan->n_groups; i++) {
        if (c->plan->groups[i]->axis == axis && c->plan->groups[i]->bytes_per_s > 0) {
            return c->plan->groups[i];
        }
    }
    return NULL;
}

/* Of a transfer in so many dependent steps. */
static double link_s(const struct costing *c, Axis axis, double bytes, double steps)
{
    const AxisGroup *g = find_group(c, axis);
    return g ? bytes / g->bytes_per_s + steps * g->latency_s : 0;
}

/* Of a collective over n ranks: a tree's depth, once. */
static double depth(double n)
{
    return n > 1 ? ceil(log2(n)) : 0;
}

static double above_zero(double s)
{
    return s > 0 ? s : 0;
}

static bool recomputes(const struct costing *c)
{
    const RecomputeSpec *r = c->plan->spec->training->recompute;
    return r && strcmp(r->mode, "full") == 0;
}

static struct costing costing_of(const Plan *plan, double rate)
{
    const TrainingSpec *t = plan->spec->training;
    struct costing c = {.plan = plan,
                        .config = plan->model->config,
                        .layout = plan->spec->parallel->layout,
                        .rate = rate,
                        .m = (double)plan->micro_batches,
                        .size = (double)memory_element_size(t)};
    const ModelConfig *model = c.config;
    double ranks = (double)c.layout->tensor * (double)c.layout->context;
    double tokens = (double)t->micro_batch_size * (double)t->seq_len;
    double mean = ((double)t->seq_len + 1) / 2;
    double head = 6.0 * (double)model->vocab_size * (double)model->hidden_size;
    double attention = 12.0 * (double)model->num_attention_heads * (double)model->head_dim * mean;
    double block = (plan->flops_per_token - head) / (double)model->num_hidden_layers;
    c.rows = tokens / (double)c.layout->context;
    double again = recomputes(&c) ? 4.0 / 3 : 1;
    c.attention_s = attention * again * tokens / ranks / rate;
    c.block_s = block * again * tokens / ranks / rate;
    c.head_s = head * tokens / ranks / rate;
    return c;
}

/* ---- in each block and micro-batch ---------------------------------------------------------- */

/* So many all-reduces of the residual stream over the tensor ranks. */
static double tensor_s(const struct costing *c, double times)
{
    double t = (double)c->layout->tensor;
    if (t <= 1) {
        return 0;
    }
    double bytes = cost_all_reduce_bytes(t, c->rows * (double)c->config->hidden_size * c->size);
    return link_s(c, AXIS_TENSOR, times * bytes, times * 2 * depth(t));
}

/* Two all-reduces forward and two backward; with sequence parallel the same bytes as reduce-scatter
 * and all-gather, and one more gather of both halves in the backward pass. */
static double tensor_block_s(const struct costing *c)
{
    return tensor_s(c, 4 + (c->layout->sequence_parallel ? 1 : 0) + (recomputes(c) ? 2 : 0));
}

/* One all-reduce forward for the embedding, one backward for the head; with sequence parallel the
 * head gathers once more. */
static double tensor_ends_s(const struct costing *c, const Stage *stage)
{
    int64_t layers = c->config->num_hidden_layers;
    double head = c->layout->sequence_parallel ? 1.5 : 1;
    return tensor_s(c, (stage_has_embed(stage, layers) ? 1 : 0) +
                           (stage_has_head(stage, layers) ? head : 0));
}

/* Ring: keys and values go round once forward, with their gradients once backward, while attention
 * is computed. All-gather: gathered twice, gradients scattered once. Ulysses: four all-to-alls each
 * way. */
static double context_block_s(const struct costing *c)
{
    double n = (double)c->layout->context, t = (double)c->layout->tensor;
    if (n <= 1) {
        return 0;
    }
    double heads = (double)c->config->num_attention_heads / t;
    double kv_heads = ceil((double)c->config->num_key_value_heads / t);
    double width = (double)c->config->head_dim * c->size;
    double kv = 2 * c->rows * kv_heads * width;
    if (strcmp(c->layout->context_mode, "ring") == 0) {
        return above_zero(link_s(c, AXIS_CONTEXT, 3 * (n - 1) * kv, 3 * (n - 1)) - c->attention_s);
    }
    if (strcmp(c->layout->context_mode, "all_gather") == 0) {
        return link_s(c, AXIS_CONTEXT, 3 * (n - 1) * kv, 3 * depth(n));
    }
    double all = c->rows * (2 * heads + 2 * kv_heads) * width;
    return link_s(c, AXIS_CONTEXT, 2 * (n - 1) / n * all, 8 * depth(n));
}

/* Two all-to-alls forward and two backward, of the tokens' copies for their experts; with sequence
 * parallel each tensor rank sends those of its own tokens. */
static double expert_block_s(const struct costing *c)
{
    double e = (double)c->layout->expert;
    if (e <= 1) {
        return 0;
    }
    double bytes =
        c->rows * (double)c->config->num_experts_per_tok * (double)c->config->hidden_size * c->size;
    return link_s(c, AXIS_EXPERT, 4 * (e - 1) / e * bytes, 4 * depth(e));
}

/* ---- between stages ------------------------------------------------------------------------- */

/* The way through the line and back; what of the sends in between a chunk's compute doesn't hide.
 */
static double pipeline_s(const struct costing *c, double stage_s)
{
    double p = (double)c->layout->pipeline, chunks = (double)layout_chunks(c->layout);
    if (p <= 1) {
        return 0;
    }
    double split = c->layout->sequence_parallel ? (double)c->layout->tensor : 1;
    double hop =
        link_s(c, AXIS_PIPELINE, c->rows * (double)c->config->hidden_size * c->size / split, 1);
    return 2 * (p - 1) * hop + c->m * chunks * above_zero(2 * hop - stage_s / chunks);
}

/* ---- gradients and weights ------------------------------------------------------------------ */

/* Of so many elements, once over the gradient group. */
struct volume {
    double reduce_s; /* gradients: an all-reduce, or with ZeRO a reduce-scatter inside a shard */
    double across_s; /* their all-reduce over a shard's replicas */
    double gather_s; /* weights, with ZeRO */
};

static struct volume volume_of(const struct costing *c, double numel, double ranks)
{
    struct volume v = {0};
    if (ranks <= 1) {
        return v;
    }
    const TrainingSpec *t = c->plan->spec->training;
    Axis axis = c->layout->data > 1 ? AXIS_DATA : AXIS_CONTEXT;
    double grads = numel * (double)memory_grad_size(t), weights = numel * c->size;
    double shards = (double)layout_shards(c->layout);
    if (shards > ranks) {
        shards = ranks;
    }
    if (shards <= 1) {
        v.reduce_s = link_s(c, axis, cost_all_reduce_bytes(ranks, grads), 2 * depth(ranks));
        return v;
    }
    double replicas = ranks / shards;
    v.reduce_s = link_s(c, axis, (shards - 1) / shards * grads, depth(shards));
    v.across_s =
        link_s(c, axis, cost_all_reduce_bytes(replicas, grads / shards), 2 * depth(replicas));
    v.gather_s = link_s(c, axis, (shards - 1) / shards * weights, depth(shards));
    return v;
}

/* How many times all of a stage goes through each in a step: as its list says; where it has none
 * yet, in every micro-batch from ZeRO-2 on, and ZeRO-3 gathers twice in each. */
struct times {
    double reduce, gather;
};

static struct times times_of(const struct costing *c, const Stage *stage)
{
    int64_t zero = c->layout->zero_stage;
    struct times t = {.reduce = zero >= 2 ? c->m : 1, .gather = zero >= 3 ? 2 * c->m : 1};
    if (stage->n_actions > 0 && stage->flat_numel > 0) {
        struct schedule_volume v = schedule_volume(stage);
        t.reduce = v.reduced / (double)stage->flat_numel;
        t.gather = v.gathered / (double)stage->flat_numel;
    }
    return t;
}

/* Elements of experts that a rank of the stage holds. */
static double expert_numel(const struct costing *c, const Stage *stage)
{
    double numel = 0;
    for (size_t i = 0; i < c->plan->n_params; i++) {
        const ParamDef *def = c->plan->params[i];
        if (def->num_experts > 0) {
            numel += (double)family_param_numel(def) * (double)def->num_experts;
        }
    }
    return numel * (double)stage_num_layers(stage) / (double)c->layout->tensor /
           (double)c->layout->expert;
}

/* Reduces run under the backward pass of their micro-batches, ZeRO-1's and 2's gather under the
 * first one's forward pass; what ZeRO-3 sends, under all of the step. */
static double data_s(const struct costing *c, const Stage *stage, double stage_s)
{
    double ranks = (double)c->layout->data * (double)c->layout->context;
    double experts = expert_numel(c, stage);
    struct volume dense = volume_of(c, (double)stage->flat_numel - experts, ranks);
    struct volume own = volume_of(c, experts, ranks / (double)c->layout->expert);
    struct times times = times_of(c, stage);
    double reduce = times.reduce * (dense.reduce_s + own.reduce_s) + dense.across_s + own.across_s;
    double gather = times.gather * (dense.gather_s + own.gather_s);
    double forward = stage_s / 3, backward = stage_s - forward;
    if (c->layout->zero_stage >= 3) {
        return above_zero(gather + reduce - c->m * stage_s);
    }
    return above_zero(reduce - times.reduce * backward) + above_zero(gather - forward);
}

/* ---- together ------------------------------------------------------------------------------- */

static void mark_all(CostEstimate *out)
{
    out->has_compute_s = out->has_tensor_s = out->has_context_s = out->has_expert_s = 1;
    out->has_pipeline_s = out->has_data_s = out->has_bubble = out->has_step_s = out->has_mfu = 1;
}

bool cost_estimate(CostEstimate *out, const Plan *plan, const char *device_type)
{
    if (plan->peak_flops <= 0) {
        return false;
    }
    struct costing c = costing_of(plan, plan->peak_flops * cost_efficiency(device_type));
    double talk_s = tensor_block_s(&c) + context_block_s(&c) + expert_block_s(&c);
    double slowest_s = 0, layers = 0, worst_data_s = 0, compute_s = 0, ends_s = 0;
    int64_t num_layers = c.config->num_hidden_layers;
    for (size_t i = 0; i < plan->n_stages; i++) {
        const Stage *stage = plan->stages[i];
        double n = (double)stage_num_layers(stage);
        /* Under dualpipe a rank's two stages get half of the micro-batches each. */
        double halves = layout_schedule_is(c.layout, "dualpipe") ? 2 : 1;
        n /= halves;
        double compute =
            n * c.block_s + (stage_has_head(stage, num_layers) ? c.head_s / halves : 0);
        double ends = tensor_ends_s(&c, stage) / halves;
        double all = compute + n * talk_s + ends, data = data_s(&c, stage, all);
        worst_data_s = data > worst_data_s ? data : worst_data_s;
        if (all > slowest_s) {
            slowest_s = all;
            compute_s = compute;
            ends_s = ends;
            layers = n;
        }
    }
    double ratio = cost_bubble_ratio(plan->spec);
    cost_estimate__init(out);
    mark_all(out);
    out->compute_s = c.m * compute_s;
    out->tensor_s = c.m * (layers * tensor_block_s(&c) + ends_s);
    out->context_s = c.m * layers * context_block_s(&c);
    out->expert_s = c.m * layers * expert_block_s(&c);
    out->pipeline_s = pipeline_s(&c, slowest_s);
    out->data_s = worst_data_s;
    out->bubble = ratio / (1 + ratio);
    out->step_s = c.m * slowest_s * (1 + ratio) + out->pipeline_s + out->data_s;
    const TrainingSpec *t = plan->spec->training;
    double tokens = (double)t->global_batch_size * (double)t->seq_len;
    out->mfu = tokens * plan->flops_per_token / out->step_s / plan->peak_flops /
               (double)plan->mesh->num_ranks;
    return true;
}
