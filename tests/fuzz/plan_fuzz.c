/* Any bytes as the plan that a rank is given: a good plan of some layout with bytes of it changed
 * (most such still unpack, so that what comes behind is reached), or the bytes as they are. What
 * the proof passes can be expanded and walked. Input: 5 bytes of layout, then triples (where, two
 * bytes, and what); a first byte of 255: the rest is the plan. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "model/config.h"
#include "plan/cluster.h"
#include "plan/params.h"
#include "plan/plan.h"
#include "plan/proof.h"
#include "plan/schedule.h"
#include "plan/spec_check.h"
#include "proto/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CAP_BYTES ((size_t)16 << 20)
#define LAYOUT_BYTES 5

static const char cluster_text[] =
    "nodes: [{name: n, cores: 64, devices: [{}, {}, {}, {}, {}, {}, {}, {}]}]";

#define LLAMA                                                                                      \
    "{\"model_type\": \"llama\", \"hidden_size\": 16, \"intermediate_size\": 24, "                 \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "           \
    "\"vocab_size\": 259, \"max_position_embeddings\": 64, \"tie_word_embeddings\": true}"
#define QWEN3                                                                                      \
    "{\"model_type\": \"qwen3\", \"hidden_size\": 16, \"intermediate_size\": 24, "                 \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 1, "           \
    "\"head_dim\": 8, \"vocab_size\": 259, \"max_position_embeddings\": 64}"
#define GPT2                                                                                       \
    "{\"model_type\": \"gpt2\", \"n_embd\": 16, \"n_layer\": 2, \"n_head\": 4, "                   \
    "\"n_positions\": 64, \"vocab_size\": 259}"
static const char *const configs[] = {LLAMA, QWEN3, GPT2};

static JobSpec *spec_of(const uint8_t *layout)
{
    char text[1024];
    struct error err;
    ProtobufCMessage *m;
    int tensor = 1 << (layout[0] / 4 % 3), data = 1 + layout[1] % (8 / tensor),
        zero = layout[2] % 4;
    snprintf(text, sizeof text,
             "name: f\nmodel: {config: /c}\ndata: {train: [{path: /d, format: %s}]}\n"
             "training: {steps: 3, seq_len: 8, global_batch_size: %d}\n"
             "parallel: {data: %d, tensor: %d, zero_stage: %d, shard_size: %d, "
             "sequence_parallel: %s, bucket_mb: 0.002}\n",
             layout[3] & 1 ? "u16" : "tokenized-jsonl", data * (1 + layout[4] % 7), data, tensor,
             zero, zero && layout[3] & 2 && data % 2 == 0 ? 2 : 0,
             layout[3] & 4 ? "true" : "false");
    ASSERT(text_parse("f", text, strlen(text), &job_spec__descriptor, &m, &err) == 0);
    ASSERT(spec_check((JobSpec *)m, &err) == 0);
    return (JobSpec *)m;
}

static Plan *plan_of(const uint8_t *layout)
{
    static const struct spec_unbuilt none;
    const char *config = configs[layout[0] % 3];
    struct error err;
    ModelFacts facts = MODEL_FACTS__INIT;
    DataFacts data = DATA_FACTS__INIT;
    const DataFacts *train[] = {&data};
    ClusterSpec *cluster;
    Plan *plan;
    data.has_num_tokens = data.has_num_rows = data.has_longest_row = 1;
    data.num_tokens = 4096;
    data.num_rows = 512;
    data.longest_row = 8;
    ASSERT(config_parse("c", config, strlen(config), &facts.config, &err) == 0);
    ASSERT(cluster_parse("k", cluster_text, sizeof cluster_text - 1, &cluster, &err) == 0);
    JobSpec *spec = spec_of(layout);
    struct plan_input in = {.spec = spec,
                            .model = &facts,
                            .train = train,
                            .num_train = 1,
                            .cluster = cluster,
                            .unbuilt = &none};
    if (plan_build(&in, &plan, &err) != 0) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    job_spec__free_unpacked(spec, NULL);
    model_config__free_unpacked(facts.config, NULL);
    cluster_spec__free_unpacked(cluster, NULL);
    return plan;
}

/* As a rank does it. */
static void take(const uint8_t *bytes, size_t size, bool unchanged)
{
    struct error err;
    ProtobufCMessage *m;
    if (text_unpack(&plan__descriptor, bytes, size, CAP_BYTES, &m, &err) != 0) {
        return;
    }
    Plan *plan = (Plan *)m;
    bool proved = plan_check_built(plan, &err) == 0 || plan_prove(plan, &err) == 0;
    ASSERT(proved || !unchanged);
    for (size_t i = 0; i < plan->n_stages && i < 4; i++) {
        struct param_table table;
        if (plan->model && params_expand(plan, (int32_t)i, &table, &err) == 0) {
            params_free(&table);
        }
    }
    if (proved) {
        struct schedule_walk w = {.stage = plan->stages[0]};
        Action a;
        while (schedule_next(&w, &a)) {
        }
        schedule_volume(plan->stages[0]);
    }
    plan__free_unpacked(plan, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < LAYOUT_BYTES) {
        return 0;
    }
    if (data[0] == 255) {
        take(data + 1, size - 1, false);
        return 0;
    }
    Plan *plan = plan_of(data);
    size_t len = plan__get_packed_size(plan);
    uint8_t *bytes = malloc(len);
    ASSERT(bytes && plan__pack(plan, bytes) == len);
    plan__free_unpacked(plan, NULL);
    for (size_t i = LAYOUT_BYTES; i + 3 <= size; i += 3) {
        bytes[(size_t)(data[i] << 8 | data[i + 1]) % len] = data[i + 2];
    }
    take(bytes, len, size < LAYOUT_BYTES + 3);
    free(bytes);
    return 0;
}
