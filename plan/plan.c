#include "plan/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/config.h"
#include "model/family.h"
#include "plan/layout_rules.h"
#include "plan/memory.h"
#include "plan/mesh.h"
#include "plan/placement.h"
#include "plan/plan_parts.h"
#include "plan/proof.h"
#include "plan/schedule.h"
#include "plan/spec_check.h"
#include "proto/text.h"

#define NOTES_MAX 16
#define SPEC_MEMORY_MAX ((size_t)16 << 20)

void plan_add_note(Plan *plan, const char *fmt, ...)
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

void plan_add_unbuilt(Plan *plan, const char *line)
{
    char **grown = realloc(plan->unbuilt, (plan->n_unbuilt + 1) * sizeof *grown);
    ASSERT(grown);
    plan->unbuilt = grown;
    plan->unbuilt[plan->n_unbuilt] = strdup(line);
    ASSERT(plan->unbuilt[plan->n_unbuilt]);
    plan->n_unbuilt++;
}

int plan_check_built(const Plan *plan, struct error *err)
{
    if (plan->n_unbuilt > 0) {
        return error_set(err, ERR_UNIMPLEMENTED, "this plan can't be started: %s",
                         plan->unbuilt[0]);
    }
    const Mesh *m = plan->mesh;
    const JobSpec *spec = plan->spec;
    if (!m || !spec || !spec->parallel || !plan->model || !plan->model->config ||
        spec->parallel->choice_case != PARALLEL_CHOICE__CHOICE_LAYOUT) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: incomplete");
    }
    if (m->pipeline != 1 || m->context != 1 || m->expert != 1 || plan->n_stages != 1) {
        return error_set(err, ERR_UNIMPLEMENTED,
                         "this runtime knows the data and the tensor axis alone");
    }
    return family_check_built("model", plan->model->config, err) != 0 ? -1 : plan_prove(plan, err);
}

/* Is every part and text of checked in spec, too? (Numbers have their defaults.) */
static bool is_complete(const ProtobufCMessage *spec, const ProtobufCMessage *checked)
{
    for (unsigned i = 0; i < checked->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &checked->descriptor->fields[i];
        bool is_part = f->type == PROTOBUF_C_TYPE_MESSAGE || f->type == PROTOBUF_C_TYPE_STRING;
        bool in_choice = (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0;
        if (!is_part || in_choice || f->label == PROTOBUF_C_LABEL_REPEATED) {
            continue;
        }
        const void *part = *(void *const *)((const char *)spec + f->offset);
        const void *wanted = *(void *const *)((const char *)checked + f->offset);
        if (wanted &&
            (!part || (f->type == PROTOBUF_C_TYPE_MESSAGE && !is_complete(part, wanted)))) {
            return false;
        }
    }
    return true;
}

/* The spec of a plan was checked and filled in before: it stands another check, which adds nothing
 * that a rank would miss. */
static int check_spec(const JobSpec *spec, struct error *err)
{
    ProtobufCMessage *again;
    size_t len = job_spec__get_packed_size(spec);
    uint8_t *bytes = malloc(len + 1);
    ASSERT(bytes);
    job_spec__pack(spec, bytes);
    int rc = text_unpack(&job_spec__descriptor, bytes, len, SPEC_MEMORY_MAX, &again, err);
    free(bytes);
    if (rc != 0) {
        return error_wrap(err, "plan");
    }
    rc = spec_check((JobSpec *)again, err);
    if (rc == 0 && !is_complete(&spec->base, again)) {
        rc = error_set(err, ERR_INVALID_ARGUMENT, "its spec is not complete");
    }
    protobuf_c_message_free_unpacked(again, NULL);
    return rc == 0 ? 0 : error_wrap(err, "plan");
}

/* Is it said what to compute with, and does that go together? */
static int check_types(const Plan *plan, struct error *err)
{
    const char *backend = plan->backend, *precision = plan->spec->training->precision;
    bool ref = strcmp(backend, "ref") == 0;
    if (!ref && strcmp(backend, "cpu") != 0 && strcmp(backend, "cuda") != 0) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: there is no backend \"%.32s\"", backend);
    }
    if (strcmp(precision, "auto") == 0 || (strcmp(precision, "fp64") == 0 && !ref)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: precision %s on backend %s", precision,
                         backend);
    }
    return 0;
}

int plan_check_received(const Plan *plan, struct error *err)
{
    if (!plan->spec || !plan->backend || !plan->memory) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: incomplete");
    }
    return check_spec(plan->spec, err) != 0 || check_types(plan, err) != 0
               ? -1
               : plan_check_built(plan, err);
}

/* The lists are ours: one that fails is no fault of the job. */
static int prove(const Plan *plan, struct error *err)
{
    struct error why;
    if (plan->n_stages != 1 || plan->stages[0]->n_actions == 0 || plan_prove(plan, &why) == 0) {
        return 0;
    }
    return error_set(err, ERR_INTERNAL, "the plan that was made is wrong: %s", why.text);
}

/* ---- does model, data and batch go together? ---- */

/* A family that can't be trained yet: refused, or noted in a plan to look at. */
static int check_family(Plan *plan, const struct plan_input *in, struct error *err)
{
    struct error why;
    bool from_folder = plan->spec->model && plan->spec->model->path;
    const char *field = from_folder ? "model.path" : "model.config";
    if (family_check_built(field, plan->model->config, &why) == 0) {
        return 0;
    }
    if (!in->unbuilt) {
        *err = why;
        return -1;
    }
    plan_add_unbuilt(plan, why.text);
    return 0;
}

static int check_model(const JobSpec *spec, const ModelConfig *config, struct error *err)
{
    const char *path = spec->model && spec->model->path ? spec->model->path : "model.config";
    if (config_check(path, config, err) != 0) {
        return -1;
    }
    if (spec->training->seq_len > config->max_position_embeddings) {
        return error_set(
            err, ERR_FAILED_PRECONDITION, "training.seq_len: %lld is above the model's %s %lld",
            (long long)spec->training->seq_len, config_key(config, "max_position_embeddings"),
            (long long)config->max_position_embeddings);
    }
    return layout_rules_check_model(spec, config, err);
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

static int set_length(Plan *plan, const struct plan_input *in, struct error *err)
{
    const SourceSpec *source = plan->spec->data->train[0];
    plan->has_total_steps = 1;
    if (!in->no_data) {
        plan->has_samples_per_epoch = 1;
        plan->samples_per_epoch =
            plan_samples_per_epoch(plan->train[0], source, plan->spec->training->seq_len);
    }
    return plan_total_steps(plan->spec, plan->samples_per_epoch, &plan->total_steps, err);
}

/* ---- */

static int place_on(Plan *plan, const struct plan_input *in, const struct fabric *f,
                    struct error *err)
{
    if (placement_build(plan, in, f, err) != 0) {
        return -1;
    }
    /* Devices are looked for with one thread's scratch space: how many there are is known now. */
    if (strcmp(plan->backend, "cuda") != 0 && plan->threads_per_rank > 1 &&
        plan_set_memory(plan, err) != 0) {
        return -1;
    }
    if (in->too_little && plan->memory->total_bytes < MEMORY_MAX_BYTES) {
        placement_check_memory(plan, f, in->too_little);
        return 0;
    }
    return placement_check_memory(plan, f, err);
}

static int place(Plan *plan, const struct plan_input *in, struct error *err)
{
    if (in->fabric) {
        return place_on(plan, in, in->fabric, err);
    }
    struct fabric *f;
    if (fabric_new(&f, in->cluster, err) != 0) {
        return error_wrap(err, "cluster");
    }
    int rc = place_on(plan, in, f, err);
    fabric_free(f);
    return rc;
}

static int fill(Plan *plan, const struct plan_input *in, bool *passed_over, struct error *err)
{
    const ParallelSpec *layout = plan->spec->parallel->layout;
    if (check_model(plan->spec, plan->model->config, err) != 0 ||
        check_family(plan, in, err) != 0) {
        return -1;
    }
    plan->model->num_params = family_num_params(plan->model->config);
    for (size_t i = 0; i < plan->spec->data->n_train; i++) {
        if (plan_check_source(plan->spec, plan->spec->data->train[i],
                              in->no_data ? NULL : plan->train[i], plan->model->config, err) != 0) {
            return -1;
        }
    }
    plan->mesh = malloc(sizeof *plan->mesh);
    ASSERT(plan->mesh);
    mesh__init(plan->mesh);
    /* Memory before devices: those that are too small are passed over. */
    if (mesh_init(plan->mesh, layout, err) != 0 || set_micro_batches(plan, err) != 0 ||
        plan_set_backend(plan, in, passed_over, err) != 0 || set_length(plan, in, err) != 0 ||
        plan_set_stages(plan, err) != 0 || plan_set_memory(plan, err) != 0 ||
        place(plan, in, err) != 0) {
        return -1;
    }
    plan_set_flops(plan);
    plan_set_cost(plan, in->cluster);
    plan_add_notes(plan);
    return prove(plan, err);
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
    ASSERT(!in->no_data || (in->unbuilt && in->num_train == 0 && !plan_needs_data(s)));
    if (!in->model || !in->model->config || (!in->no_data && in->num_train != s->data->n_train)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "plan: facts of model or data are missing");
    }
    return 0;
}

/* Of data that nobody has seen: facts that say nothing. */
static void set_facts(Plan *plan, const struct plan_input *in)
{
    static const DataFacts none = DATA_FACTS__INIT;
    plan->train = calloc(in->spec->data->n_train, sizeof(DataFacts *));
    ASSERT(plan->train);
    for (size_t i = 0; i < in->spec->data->n_train; i++) {
        const DataFacts *facts = in->no_data ? &none : in->train[i];
        plan->train[plan->n_train++] = (DataFacts *)text_clone(&facts->base);
    }
}

/* *passed_over: as plan_set_backend says it. */
static int build(const struct plan_input *in, Plan **out, bool *passed_over, struct error *err)
{
    *passed_over = false;
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
    set_facts(plan, in);
    for (size_t i = 0; in->unbuilt && i < in->unbuilt->num; i++) {
        plan_add_unbuilt(plan, in->unbuilt->lines[i]);
    }
    if (fill(plan, in, passed_over, err) != 0) {
        plan__free_unpacked(plan, NULL);
        return -1;
    }
    *out = plan;
    return 0;
}

/* GPUs that are gone count again where the CPU devices don't take the job (memory, domains): it
 * waits for the GPUs, then. Where they do, who would rather wait hears of it, if that has an end.
 */
int plan_build(const struct plan_input *in, Plan **out, struct error *err)
{
    bool passed_over, again;
    struct plan_input all = *in;
    struct error second;
    Plan *on_gpus;
    all.num_gpus_gone = 0;
    int rc = build(in, out, &passed_over, err);
    if (!passed_over) {
        return rc;
    }
    if (rc != 0) {
        return build(&all, out, &again, &second);
    }
    if (build(&all, &on_gpus, &again, &second) == 0) {
        plan__free_unpacked(on_gpus, NULL);
        plan_say_gpus_would_do(*out);
    }
    return 0;
}
