/* Job file -> checked JobSpec -> Plan, as the controller does it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/fs.h"
#include "gang.h"
#include "model/config.h"
#include "model/family.h"
#include "plan/plan.h"
#include "plan/spec_check.h"
#include "proto/text.h"
#include "runtime/data/formats.h"
#include "runtime/data/row_facts.h"

static int64_t or_one(int64_t n)
{
    return n ? n : 1;
}

static const char *or_else(const char *word, const char *usual)
{
    return word != NULL ? word : usual;
}

static void put_model_and_data(struct buf *b, const struct gang_spec *s)
{
    if (s->config != NULL)
        buf_printf(b, "model: {config: %s}\n", s->config);
    else
        buf_printf(b, "model: {path: %s}\n", or_else(s->model_path, golden_path(s->golden, "")));
    const char *format = or_else(s->format, "u16");
    bool rows = strcmp(format, "tokenized-jsonl") == 0; /* which are samples as they are */
    buf_printf(b, "data: {order: %s, train: [{path: %s, format: %s, window: %s}]}\n",
               or_else(s->order, "sequential"),
               or_else(s->data_path, golden_path(s->golden, "train.bin")), format,
               or_else(s->window, rows ? "T" : "T+1"));
}

/* What a backend computes on. */
static const char *device_type(const struct gang_spec *s)
{
    return strcmp(or_else(s->backend, "ref"), "cuda") == 0 ? or_else(s->device, "h100") : "cpu";
}

static void put_parallel(struct buf *b, const struct gang_spec *s)
{
    buf_printf(b, "parallel: {data: %lld, tensor: %lld, zero_stage: %lld, bucket_mb: %s",
               (long long)or_one(s->data), (long long)or_one(s->tensor), (long long)s->zero_stage,
               or_else(s->bucket_mb, "0.05"));
    if (s->shard_size > 0)
        buf_printf(b, ", shard_size: %lld", (long long)s->shard_size);
    buf_printf(b, "%s}\n", s->sequence_parallel ? ", sequence_parallel: true" : "");
    buf_printf(b, "resources: {devices: %lld, type: %s, backend: %s}\n",
               (long long)(or_one(s->data) * or_one(s->tensor)), device_type(s),
               or_else(s->backend, "ref"));
}

char *gang_job_text(const struct gang_spec *s)
{
    struct buf b = {0};
    buf_puts(&b, "name: case\n");
    put_model_and_data(&b, s);
    buf_printf(
        &b,
        "training:\n"
        "  steps: %lld\n"
        "  seq_len: %lld\n"
        "  global_batch_size: %lld\n"
        "  micro_batch_size: %lld\n"
        "  precision: %s\n"
        "  clip_grad_norm: %s\n"
        "  optimizer: {%s}\n"
        "  lr_schedule: {%s}\n",
        (long long)(s->steps ? s->steps : 20), (long long)s->golden->seq_len,
        (long long)(s->batch ? s->batch : s->golden->batch), (long long)or_one(s->micro),
        or_else(s->precision, "fp64"), or_else(s->clip, "1.0"),
        or_else(s->optimizer, "name: adamw, lr: 0.002, betas: [0.9, 0.95], weight_decay: 0.1"),
        or_else(s->lr_schedule,
                "warmup_steps: 5, decay: cosine, decay_steps: 20, min_lr_ratio: 0.1"));
    put_parallel(&b, s);
    buf_printf(&b, "checkpoint: {%s}\n",
               or_else(s->checkpoint, "interval: 0, export_at_end: false"));
    return buf_take(&b);
}

static JobSpec *parse_spec(const struct gang_spec *s)
{
    ProtobufCMessage *message;
    struct error err = {0};
    char *text = gang_job_text(s);
    if (text_parse("job.yaml", text, strlen(text), &job_spec__descriptor, &message, &err) != 0 ||
        spec_check((JobSpec *)message, &err) != 0)
        fail_msg("%s\n%s", err.text, text);
    free(text);
    return (JobSpec *)message;
}

static ModelFacts *read_model(const JobSpec *spec)
{
    char path[600], *text;
    size_t len;
    struct error err = {0};
    ModelFacts *facts = malloc(sizeof(*facts));
    assert_non_null(facts);
    model_facts__init(facts);
    if (spec->model->path != NULL) {
        snprintf(path, sizeof(path), "%s/config.json", spec->model->path);
        facts->path = strdup(spec->model->path);
    } else {
        snprintf(path, sizeof(path), "%s", spec->model->config);
    }
    if (fs_read_file(path, 1 << 20, &text, &len, &err) != 0 ||
        config_parse(path, text, len, &facts->config, &err) != 0)
        fail_msg("%s", err.text);
    free(text);
    facts->has_num_params = 1;
    facts->num_params = family_num_params(facts->config);
    return facts;
}

static void read_data(const SourceSpec *source, DataFacts *facts)
{
    struct error err = {0};
    struct token_file *file = NULL;
    enum data_format format;
    data_facts__init(facts);
    facts->path = source->path;
    facts->format = source->format;
    if (strcmp(source->format, "tokenized-jsonl") == 0) {
        if (row_facts(NULL, source->path, facts, &err) != 0)
            fail_msg("%s", err.text);
        return;
    }
    if (formats_parse(source->format, &format, &err) != 0 ||
        formats_open(&file, NULL, source->path, format, &err) != 0)
        fail_msg("%s", err.text);
    facts->has_num_tokens = facts->has_size_bytes = 1;
    facts->num_tokens = formats_num_tokens(file);
    facts->size_bytes = formats_size_bytes(file);
    formats_close(file);
}

Plan *gang_plan(const struct gang_spec *s)
{
    static DeviceInfo devices[GANG_MAX_RANKS];
    DeviceInfo *device_list[GANG_MAX_RANKS];
    bool gpus = strcmp(device_type(s), "cpu") != 0;
    for (int i = 0; i < GANG_MAX_RANKS; i++) {
        device_info__init(&devices[i]);
        devices[i].has_index = devices[i].has_peak_flops_fp32 = 1;
        devices[i].index = i;
        devices[i].peak_flops_fp32 = 1e11;
        devices[i].has_mem_bytes = 1;
        devices[i].mem_bytes = !gpus ? 0 : s->mem_bytes > 0 ? s->mem_bytes : (int64_t)80 << 30;
        devices[i].type = (char *)(uintptr_t)device_type(s);
        device_list[i] = &devices[i];
    }
    NodeInfo node = NODE_INFO__INIT, *nodes[] = {&node};
    node.name = (char *)"here";
    node.has_cores = 1;
    node.cores = 2;
    node.n_devices = GANG_MAX_RANKS;
    node.devices = device_list;
    ClusterSpec cluster = CLUSTER_SPEC__INIT;
    cluster.n_nodes = 1;
    cluster.nodes = nodes;

    JobSpec *spec = parse_spec(s);
    ModelFacts *model = read_model(spec);
    DataFacts data;
    read_data(spec->data->train[0], &data);
    const DataFacts *train[] = {&data};
    struct plan_input in = {
        .spec = spec,
        .model = model,
        .train = train,
        .num_train = 1,
        .cluster = &cluster,
        .gpu_node = node.name,
    };
    Plan *plan;
    struct error err = {0};
    if (plan_build(&in, &plan, &err) != 0)
        fail_msg("%s", err.text);
    job_spec__free_unpacked(spec, NULL);
    model_facts__free_unpacked(model, NULL);
    return plan;
}
