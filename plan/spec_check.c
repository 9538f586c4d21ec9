/* The walk over a spec (each field against its rule, then its default), and the rules between
 * fields. */
#include "plan/spec_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "plan/layout_rules.h"
#include "plan/mesh.h"
#include "plan/spec_rules.h"
#include "plan/spec_value.h"
#include "proto/field.h"
#include "proto/number.h"
#include "proto/text.h"

#define TEXT_LEN_MAX 4096
#define TOKENS_MAX ((int64_t)1 << 62)

/* ---- the walk ------------------------------------------------------------------------------- */

static int check_message(ProtobufCMessage *message, struct buf *path, struct spec_unbuilt *unbuilt,
                         struct error *err);

static int check_elements(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                          const struct spec_rule *rule, struct buf *path,
                          struct spec_unbuilt *unbuilt, struct error *err)
{
    bool list = field->label == PROTOBUF_C_LABEL_REPEATED;
    size_t num = field_count(message, field), before = path->len;
    if (list && rule->max_count && num > rule->max_count) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: %zu elements; wants at most %zu",
                         path->data, num, rule->max_count);
    }
    if (rule->kind == SPEC_UNBUILT) {
        int rc =
            spec_value_check(path->data, rule, field, field_at(message, field, 0), unbuilt, err);
        if (rc || field->type != PROTOBUF_C_TYPE_MESSAGE) {
            return rc;
        }
    }
    for (size_t i = 0; i < num; i++) {
        if (list) {
            buf_printf(path, ".%zu", i);
        }
        int rc = field->type == PROTOBUF_C_TYPE_MESSAGE
                     ? check_message(field_message(message, field, i), path, unbuilt, err)
                     : spec_value_check(path->data, rule, field, field_at(message, field, i),
                                        unbuilt, err);
        if (rc) {
            return -1;
        }
        path->len = before;
        path->data[before] = 0;
    }
    return 0;
}

/* An absent field: its default, or a message of defaults. */
static int fill_field(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                      const struct spec_rule *rule, struct buf *path, struct spec_unbuilt *unbuilt,
                      struct error *err)
{
    if (rule->required) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: required", path->data);
    }
    if (rule->fill) {
        int rc = text_set(message, field->name, rule->fill, err);
        ASSERT(rc == 0);
        return 0;
    }
    bool message_type = field->type == PROTOBUF_C_TYPE_MESSAGE;
    if (!message_type || field->label == PROTOBUF_C_LABEL_REPEATED || rule->kind == SPEC_UNBUILT) {
        field_fill_default(message, field);
        return 0;
    }
    return check_message(field_add_message(message, field), path, unbuilt, err);
}

static int check_field(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                       struct buf *path, struct spec_unbuilt *unbuilt, struct error *err)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", message->descriptor->short_name, field->name);
    const struct spec_rule *rule = spec_rules_find(name);
    ASSERT(rule);
    return field_is_set(message, field) ? check_elements(message, field, rule, path, unbuilt, err)
                                        : fill_field(message, field, rule, path, unbuilt, err);
}

/* A choice stands under its field's own path; an empty one gets its message member. */
static int check_choice(ProtobufCMessage *choice, struct buf *path, struct spec_unbuilt *unbuilt,
                        struct error *err)
{
    const ProtobufCFieldDescriptor *chosen = field_chosen(choice);
    if (!chosen) {
        chosen = field_choice_member(choice->descriptor, true);
        field_add_message(choice, chosen);
    }
    return check_field(choice, chosen, path, unbuilt, err);
}

static int check_message(ProtobufCMessage *message, struct buf *path, struct spec_unbuilt *unbuilt,
                         struct error *err)
{
    /* A newer client's field that this version can't obey must not be dropped in silence. */
    if (message->n_unknown_fields) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s%sfield number %u is not known to this version of the server",
                         path->data, path->len ? ": " : "", message->unknown_fields[0].tag);
    }
    if (field_is_choice(message->descriptor)) {
        return check_choice(message, path, unbuilt, err);
    }
    size_t before = path->len;
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        buf_printf(path, "%s%s", before ? "." : "", field->name);
        if (check_field(message, field, path, unbuilt, err)) {
            return -1;
        }
        path->len = before;
        path->data[before] = 0;
    }
    return 0;
}

/* ---- between fields ------------------------------------------------------------------------- */

static int check_sources(const JobSpec *spec, struct error *err)
{
    const ModelSpec *model = spec->model;
    if (!model->path == !model->config) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         model->path ? "model: path and config exclude each other"
                                     : "model: wants one of path and config");
    }
    if (spec->data->n_train > 1) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "data.train: %zu sources: mixing sources is not built yet; use 1",
                         spec->data->n_train);
    }
    for (size_t i = 0; i < spec->data->n_train; i++) {
        const SourceSpec *source = spec->data->train[i];
        if (strcmp(source->format, "tokenized-jsonl") == 0 && strcmp(source->window, "T") != 0) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "data.train.%zu.window: %s: a row of tokenized-jsonl is a sample as "
                             "it is; leave window out",
                             i, source->window);
        }
    }
    return 0;
}

static int check_duration(const TrainingSpec *t, struct error *err)
{
    int num = (t->has_steps != 0) + (t->has_tokens != 0) + (t->has_epochs != 0);
    if (num != 1) {
        return error_set(err, ERR_INVALID_ARGUMENT, "training: %s",
                         num ? "steps, tokens and epochs exclude each other"
                             : "wants one of steps, tokens and epochs");
    }
    /* seq_len <= 2^24 and global_batch_size <= 2^31, so this product fits. */
    int64_t tokens_a_step = t->seq_len * t->global_batch_size;
    if (t->has_steps && t->steps > TOKENS_MAX / tokens_a_step) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "training.steps: %" PRId64 ": with %" PRId64
                         " tokens a step that is more than 2^62 tokens",
                         t->steps, tokens_a_step);
    }
    if (t->optimizer->n_betas != 2) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "training.optimizer.betas: wants two numbers, as [0.9, 0.95]");
    }
    return 0;
}

static int check_batch(const TrainingSpec *t, const ParallelSpec *layout, struct error *err)
{
    /* At most 2^31 * 2^17. */
    int64_t at_once = layout->data * t->micro_batch_size, global = t->global_batch_size;
    int64_t below = global / at_once * at_once, above = below + at_once;
    if (global == below) {
        return 0;
    }
    char nearest[64];
    if (below > 0) {
        snprintf(nearest, sizeof nearest, "%" PRId64 " or %" PRId64, below, above);
    } else {
        snprintf(nearest, sizeof nearest, "%" PRId64, above);
    }
    return error_set(err, ERR_INVALID_ARGUMENT,
                     "training.global_batch_size: %" PRId64
                     ": not a multiple of parallel.data x micro_batch_size = %" PRId64 " x %" PRId64
                     " = %" PRId64 "; use %s",
                     global, layout->data, t->micro_batch_size, at_once, nearest);
}

static int check_devices(ResourcesSpec *r, const ParallelSpec *layout, struct error *err)
{
    const int64_t axes[] = {layout->data, layout->tensor, layout->pipeline, layout->context};
    int64_t product = 1;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        product *= axes[i];
        if (product > MESH_MAX_RANKS) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "parallel: data x tensor x pipeline x context is more than %d ranks",
                             MESH_MAX_RANKS);
        }
    }
    if (!r->has_devices) {
        r->has_devices = 1;
        r->devices = product;
    }
    if (r->devices != product) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "resources.devices: %" PRId64 ": the layout data %" PRId64
                         " x tensor %" PRId64 " x pipeline %" PRId64 " x context %" PRId64
                         " has %" PRId64 "; use %" PRId64 " or change the layout",
                         r->devices, axes[0], axes[1], axes[2], axes[3], product, product);
    }
    return 0;
}

static int check_backend(const JobSpec *spec, struct error *err)
{
    const char *backend = spec->resources->backend;
    if (strcmp(spec->training->precision, "fp64") == 0 &&
        (strcmp(backend, "cpu") == 0 || strcmp(backend, "cuda") == 0)) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "resources.backend: %s: computes in fp32 and bf16; with precision fp64 "
                         "use ref or auto",
                         backend);
    }
    return 0;
}

/* HYBRID_SHARD is a name for stage 3 that asks for a shard_size. Such a spec is then one that says
 * 3. */
static int replace_hybrid(JobSpec *spec, struct error *err)
{
    ParallelSpec *l =
        spec->parallel && spec->parallel->choice_case == PARALLEL_CHOICE__CHOICE_LAYOUT
            ? spec->parallel->layout
            : NULL;
    if (!l || !l->has_zero_stage || l->zero_stage != ZERO_NAME_HYBRID_SHARD) {
        return 0;
    }
    if (!l->has_shard_size || l->shard_size == 0) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "parallel.zero_stage: HYBRID_SHARD shards inside blocks of ranks: "
                         "parallel.shard_size has to say of how many (a divisor of parallel.data "
                         "%" PRId64 "); without blocks use FULL_SHARD",
                         l->data);
    }
    l->zero_stage = 3;
    return 0;
}

/* unbuilt NULL: what isn't built is refused. */
static int check(JobSpec *spec, struct spec_unbuilt *unbuilt, struct error *err)
{
    if (text_check_message(&spec->base, TEXT_LEN_MAX, err)) {
        return -1;
    }
    struct buf path = {0};
    buf_puts(&path, "");
    if (replace_hybrid(spec, err)) {
        buf_free(&path);
        return -1;
    }
    int rc = check_message(&spec->base, &path, unbuilt, err);
    buf_free(&path);
    if (rc) {
        return -1;
    }
    const ParallelSpec *layout = spec_layout(spec);
    if (check_sources(spec, err) || check_duration(spec->training, err) ||
        check_devices(spec->resources, layout, err) || check_batch(spec->training, layout, err) ||
        check_backend(spec, err) || layout_rules_check(spec, err)) {
        return -1;
    }
    return 0;
}

int spec_check(JobSpec *spec, struct error *err)
{
    return check(spec, NULL, err);
}

int spec_check_plan(JobSpec *spec, struct spec_unbuilt *unbuilt, struct error *err)
{
    ASSERT(unbuilt->num == 0);
    return check(spec, unbuilt, err);
}

/* ---- of a checked spec ---------------------------------------------------------------------- */

int32_t spec_priority(const JobSpec *spec)
{
    static const struct {
        const char *word;
        int32_t value;
    } words[] = {{"low", 250}, {"normal", 500}, {"high", 750}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(spec->priority, words[i].word) == 0) {
            return words[i].value;
        }
    }
    int64_t value;
    bool whole = number_i64(spec->priority, strlen(spec->priority), &value);
    ASSERT(whole && value >= 0 && value <= 1000);
    return (int32_t)value;
}

int64_t spec_checkpoint_interval(const JobSpec *spec)
{
    const char *text = spec->checkpoint->interval;
    int64_t value;
    if (strcmp(text, "auto") == 0) {
        return -1;
    }
    bool whole = number_i64(text, strlen(text), &value);
    ASSERT(whole && value >= 0);
    return value;
}

const ParallelSpec *spec_layout(const JobSpec *spec)
{
    ASSERT(spec->parallel && spec->parallel->choice_case == PARALLEL_CHOICE__CHOICE_LAYOUT);
    return spec->parallel->layout;
}
