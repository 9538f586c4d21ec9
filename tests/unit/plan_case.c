#include "plan_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

void plan_case_config(struct plan_case *c, int64_t layers, int64_t d, int64_t f, int64_t h,
                      int64_t kv, int64_t v)
{
    c->config.num_hidden_layers = layers;
    c->config.hidden_size = d;
    c->config.intermediate_size = f;
    c->config.num_attention_heads = h;
    c->config.num_key_value_heads = kv;
    c->config.head_dim = d / h;
    c->config.vocab_size = v;
    c->config.has_num_hidden_layers = c->config.has_hidden_size = 1;
    c->config.has_intermediate_size = c->config.has_num_attention_heads = 1;
    c->config.has_max_position_embeddings = c->config.has_tie_word_embeddings = 1;
    c->config.has_num_key_value_heads = c->config.has_head_dim = c->config.has_vocab_size = 1;
}

void plan_case_cluster(struct plan_case *c, int nodes, int devices_each, int32_t cores,
                       int64_t device_mem_bytes)
{
    c->cluster.n_nodes = (size_t)nodes;
    c->cluster.nodes = c->node_list;
    for (int i = 0; i < nodes; i++) {
        NodeInfo *n = &c->nodes[i];
        node_info__init(n);
        snprintf(c->names[i], sizeof c->names[i], "node%d", i);
        n->name = c->names[i];
        n->has_cores = 1;
        n->cores = cores;
        n->n_devices = (size_t)devices_each;
        n->devices = &c->device_list[i * devices_each];
        c->node_list[i] = n;
        for (int j = 0; j < devices_each; j++) {
            DeviceInfo *d = &c->devices[i * devices_each + j];
            device_info__init(d);
            d->has_index = d->has_mem_bytes = 1;
            d->index = j;
            d->mem_bytes = device_mem_bytes;
            d->has_peak_flops_fp32 = d->has_peak_flops_fp64 = 1;
            d->peak_flops_fp32 = 2e11;
            d->peak_flops_fp64 = 1e11;
            n->devices[j] = d;
        }
    }
}

static void init_spec(struct plan_case *c)
{
    job_spec__init(&c->spec);
    model_spec__init(&c->model_spec);
    data_spec__init(&c->data);
    source_spec__init(&c->source);
    training_spec__init(&c->training);
    optimizer_spec__init(&c->optimizer);
    parallel_choice__init(&c->parallel);
    parallel_spec__init(&c->layout);
    resources_spec__init(&c->resources);
    c->spec.name = (char *)"case";
    c->spec.model = &c->model_spec;
    c->model_spec.path = (char *)"/models/llama-tiny";
    c->spec.data = &c->data;
    c->data.n_train = 1;
    c->data.train = c->sources;
    c->sources[0] = &c->source;
    c->source.path = (char *)"/data/train.bin";
    c->source.format = (char *)"u16";
    c->spec.training = &c->training;
    c->training.optimizer = &c->optimizer;
    c->training.has_steps = c->training.has_seq_len = c->training.has_global_batch_size = 1;
    c->training.steps = 3;
    c->training.seq_len = 12;
    c->training.global_batch_size = 8;
    c->spec.parallel = &c->parallel;
    c->parallel.choice_case = PARALLEL_CHOICE__CHOICE_LAYOUT;
    c->parallel.layout = &c->layout;
    /* As spec_check leaves it: every field is there, whatever a test sets it to. */
    ParallelSpec *l = &c->layout;
    l->has_data = l->has_tensor = l->has_pipeline = l->has_context = l->has_expert = 1;
    l->has_zero_stage = l->has_shard_size = l->has_sequence_parallel = l->has_virtual_stages = 1;
    c->training.has_micro_batch_size = 1;
    c->layout.data = 2;
    c->spec.resources = &c->resources;
}

struct plan_case *plan_case_new(void)
{
    struct plan_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->nodes = calloc(PLAN_CASE_MAX_NODES, sizeof *c->nodes);
    c->node_list = calloc(PLAN_CASE_MAX_NODES, sizeof *c->node_list);
    c->names = calloc(PLAN_CASE_MAX_NODES, sizeof *c->names);
    c->devices = calloc(PLAN_CASE_MAX_DEVICES, sizeof *c->devices);
    c->device_list = calloc(PLAN_CASE_MAX_DEVICES, sizeof *c->device_list);
    assert_true(c->nodes && c->node_list && c->names && c->devices && c->device_list);
    init_spec(c);
    model_config__init(&c->config);
    model_facts__init(&c->facts);
    data_facts__init(&c->data_facts);
    cluster_spec__init(&c->cluster);
    c->config.model_type = (char *)"llama";
    plan_case_config(c, 2, 64, 136, 8, 4, 256);
    c->facts.config = &c->config;
    c->facts.path = c->model_spec.path;
    c->data_facts.path = c->source.path;
    c->data_facts.has_num_tokens = 1;
    c->data_facts.num_tokens = 12 * 220 + 1;
    c->data_facts_list[0] = &c->data_facts;
    plan_case_cluster(c, 1, 4, 8, 0);
    c->input = (struct plan_input){.spec = &c->spec,
                                   .model = &c->facts,
                                   .train = c->data_facts_list,
                                   .num_train = 1,
                                   .cluster = &c->cluster};
    return c;
}

void plan_case_free(struct plan_case *c)
{
    free(c->nodes);
    free(c->node_list);
    free(c->names);
    free(c->devices);
    free(c->device_list);
    free(c);
}

Plan *plan_case_build(struct plan_case *c)
{
    Plan *plan = NULL;
    struct error err = {0};
    if (plan_build(&c->input, &plan, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return plan;
}

void plan_case_refused(struct plan_case *c, const char *part)
{
    Plan *plan = NULL;
    struct error err = {0};
    assert_int_equal(plan_build(&c->input, &plan, &err), -1);
    assert_null(plan);
    if (!strstr(err.text, part)) {
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    }
}
