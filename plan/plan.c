#include "plan/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "model/family.h"
#include "plan/buckets.h"
#include "plan/memory.h"
#include "plan/mesh.h"
#include "plan/params.h"
#include "plan/placement.h"
#include "plan/schedule.h"
#include "proto/text.h"

#define NOTES_MAX 16
/* Of the symbolic table: one block's parameters. */
#define TABLE_MAX_BYTES ((size_t)1 << 20)
/* The byte tokenizer's ids. */
#define BYTE_VOCAB 256

static void add_note(Plan *plan, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_note(Plan *plan, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    ASSERT(vasprintf(&text, fmt, args) >= 0);
    va_end(args);
    if (!plan->notes) {
        plan->notes = calloc(NOTES_MAX, sizeof *plan->notes);
        ASSERT(plan->notes);
    }
    ASSERT(plan->n_notes < NOTES_MAX);
    plan->notes[plan->n_notes++] = text;
}

/* ---- does model, data and batch go together? ---- */

static int check_model(const JobSpec *spec, const ModelConfig *config, struct error *err)
{
    const char *path = spec->model && spec->model->path ? spec->model->path : "model.config";
    if (config_check(path, config, err) != 0) {
        return -1;
    }
    if (spec->training->seq_len > config->max_position_embeddings) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "training.seq_len: %lld is above the model's max_position_embeddings %lld",
                         (long long)spec->training->seq_len,
                         (long long)config->max_position_embeddings);
    }
    return 0;
}

static int check_source(const JobSpec *spec, const SourceSpec *source, const DataFacts *facts,
                        const ModelConfig *config, struct error *err)
{
    if (strcmp(source->format, "text") == 0 && config->vocab_size < BYTE_VOCAB) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "data.tokenizer: bytes makes ids 0 to %d, the model's vocab_size is %lld",
                         BYTE_VOCAB - 1, (long long)config->vocab_size);
    }
    if (facts->max_token >= config->vocab_size) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "data.train: %s holds token %lld, the model's vocab_size is %lld",
                         source->path, (long long)facts->max_token, (long long)config->vocab_size);
    }
    int64_t seq_len = spec->training->seq_len;
    if (plan_samples_per_epoch(facts, source, seq_len) < 1) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "data.train: %s holds %lld tokens, one sample of training.seq_len %lld "
                         "needs %lld",
                         source->path, (long long)facts->num_tokens, (long long)seq_len,
                         (long long)seq_len + 1);
    }
    return 0;
}

static int set_micro_batches(Plan *plan, struct error *err)
{
    const TrainingSpec *t = plan->spec->training;
    int64_t chunk;
    if (t->micro_batch_size < 1 || t->global_batch_size < 1 ||
        __builtin_mul_overflow(plan->mesh->data, t->micro_batch_size, &chunk) ||
        t->global_batch_size % chunk != 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "training.global_batch_size: %lld is not divisible by parallel.data %lld "
                         "x training.micro_batch_size %lld",
                         (long long)t->global_batch_size, (long long)plan->mesh->data,
                         (long long)t->micro_batch_size);
    }
    int64_t m = t->global_batch_size / chunk;
    if (m > SCHEDULE_MAX_MICRO_BATCHES) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "training.micro_batch_size: %lld makes %lld micro-batches a step on each "
                         "rank, at most %d",
                         (long long)t->micro_batch_size, (long long)m, SCHEDULE_MAX_MICRO_BATCHES);
    }
    plan->has_micro_batches = 1;
    plan->micro_batches = m;
    return 0;
}

static int set_backend(Plan *plan, struct error *err)
{
    const ResourcesSpec *r = plan->spec->resources;
    bool fp64 = strcmp(plan->spec->training->precision, "fp64") == 0;
    const char *word = r && r->backend ? r->backend : "auto";
    if (strcmp(word, "auto") == 0) {
        word = fp64 ? "ref" : "cpu";
    }
    if (fp64 && strcmp(word, "ref") != 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "resources.backend: training.precision fp64 needs ref, not %s", word);
    }
    plan->backend = strdup(word);
    ASSERT(plan->backend);
    return 0;
}

/* ---- table, stage ---- */

static int set_params(Plan *plan, struct error *err)
{
    const ModelConfig *config = plan->model->config;
    struct arena arena = {.max_bytes = TABLE_MAX_BYTES};
    ParamDef **defs;
    size_t num;
    int rc = family_find(config->model_type)->params(config, &arena, &defs, &num, err);
    if (rc == 0) {
        plan->params = calloc(num, sizeof(ParamDef *));
        ASSERT(plan->params);
        for (size_t i = 0; i < num; i++) {
            plan->params[plan->n_params++] = (ParamDef *)text_clone(&defs[i]->base);
        }
    }
    arena_free(&arena);
    return rc;
}

static Stage *add_whole_stage(Plan *plan)
{
    Stage *stage = malloc(sizeof *stage);
    plan->stages = calloc(1, sizeof(Stage *));
    ASSERT(stage && plan->stages);
    stage__init(stage);
    stage->has_layer_begin = stage->has_layer_end = 1;
    stage->layer_begin = 0;
    stage->layer_end = plan->model->config->num_hidden_layers;
    plan->stages[plan->n_stages++] = stage;
    return stage;
}

static int set_stage(Plan *plan, double bucket_mb, struct error *err)
{
    Stage *stage = add_whole_stage(plan);
    struct param_table table;
    if (params_expand(plan, 0, &table, err) != 0) {
        return -1;
    }
    stage->has_flat_numel = 1;
    stage->flat_numel = table.flat_numel;
    int64_t size = memory_element_size(plan->spec->training);
    int rc = buckets_build(stage, &table, bucket_mb, size, err);
    params_free(&table);
    if (rc == 0) {
        schedule_data_parallel(stage, plan->micro_batches, family_num_units(plan->model->config),
                               plan->mesh->data > 1);
    }
    return rc;
}

static void set_memory(Plan *plan)
{
    plan->memory = malloc(sizeof *plan->memory);
    ASSERT(plan->memory);
    memory_estimate(plan->memory, plan->model->config, plan->spec, plan->stages[0]->flat_numel,
                    plan->mesh->num_ranks);
}

static int set_length(Plan *plan, struct error *err)
{
    const SourceSpec *source = plan->spec->data->train[0];
    plan->has_samples_per_epoch = plan->has_total_steps = 1;
    plan->samples_per_epoch =
        plan_samples_per_epoch(plan->train[0], source, plan->spec->training->seq_len);
    return plan_total_steps(plan->spec, plan->samples_per_epoch, &plan->total_steps, err);
}

static void set_flops(Plan *plan)
{
    double mean_attended = ((double)plan->spec->training->seq_len + 1) / 2;
    plan->has_flops_per_token = 1;
    plan->flops_per_token = family_flops_per_token(plan->model->config, mean_attended);
}

static void add_notes(Plan *plan)
{
    const TrainingSpec *t = plan->spec->training;
    double samples = (double)plan->total_steps * (double)t->global_batch_size;
    double passes = samples / (double)plan->samples_per_epoch;
    add_note(plan, "%.3g passes over the data (%lld samples of %lld tokens)", passes,
             (long long)plan->samples_per_epoch, (long long)t->seq_len);
    if (t->global_batch_size > plan->samples_per_epoch) {
        add_note(plan, "a step of %lld samples is more than one pass: samples repeat within it",
                 (long long)t->global_batch_size);
    }
    if (t->lr_schedule && t->lr_schedule->warmup_steps > plan->total_steps) {
        add_note(
            plan,
            "the rate never reaches lr: training.lr_schedule.warmup_steps is %lld, the run has "
            "%lld steps",
            (long long)t->lr_schedule->warmup_steps, (long long)plan->total_steps);
    }
    if (plan->mesh->data > 1) {
        add_note(plan, "gradients are summed over the ranks while the backward pass runs");
    }
    if (plan->peak_flops <= 0) {
        add_note(plan, "the device's peak is not measured: no MFU");
    }
}

/* ---- */

static int fill(Plan *plan, const struct plan_input *in, struct error *err)
{
    const ParallelSpec *layout = plan->spec->parallel->layout;
    if (check_model(plan->spec, plan->model->config, err) != 0) {
        return -1;
    }
    plan->model->num_params = family_num_params(plan->model->config);
    for (size_t i = 0; i < in->num_train; i++) {
        if (check_source(plan->spec, plan->spec->data->train[i], plan->train[i],
                         plan->model->config, err) != 0) {
            return -1;
        }
    }
    plan->mesh = malloc(sizeof *plan->mesh);
    ASSERT(plan->mesh);
    mesh__init(plan->mesh);
    if (mesh_init(plan->mesh, layout, err) != 0 || set_micro_batches(plan, err) != 0 ||
        set_backend(plan, err) != 0 || set_length(plan, err) != 0 ||
        placement_build(plan, in, err) != 0 || set_params(plan, err) != 0 ||
        set_stage(plan, layout->bucket_mb, err) != 0) {
        return -1;
    }
    set_memory(plan);
    if (placement_check_memory(plan, in->cluster, err) != 0) {
        return -1;
    }
    set_flops(plan);
    add_notes(plan);
    return 0;
}

/* What spec_check and the probe promise; without it there is nothing to plan. */
static int check_input(const struct plan_input *in, struct error *err)
{
    const JobSpec *s = in->spec;
    ASSERT(in->cluster);
    if (!s->training || !s->training->optimizer || !s->data || s->data->n_train < 1 ||
        !s->parallel || s->parallel->choice_case != PARALLEL_CHOICE__CHOICE_LAYOUT) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: the job is not filled in");
    }
    if (!in->model || !in->model->config || in->num_train != s->data->n_train) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: facts of model or data are missing");
    }
    return 0;
}

int plan_build(const struct plan_input *in, Plan **out, struct error *err)
{
    if (check_input(in, err) != 0) {
        return -1;
    }
    Plan *plan = malloc(sizeof *plan);
    ASSERT(plan);
    plan__init(plan);
    plan->has_version = 1;
    plan->spec = (JobSpec *)text_clone(&in->spec->base);
    plan->model = (ModelFacts *)text_clone(&in->model->base);
    plan->model->has_num_params = 1;
    plan->train = calloc(in->num_train, sizeof(DataFacts *));
    ASSERT(plan->train);
    for (size_t i = 0; i < in->num_train; i++) {
        plan->train[plan->n_train++] = (DataFacts *)text_clone(&in->train[i]->base);
    }
    if (fill(plan, in, err) != 0) {
        plan__free_unpacked(plan, NULL);
        return -1;
    }
    *out = plan;
    return 0;
}
