/* The job files of the simulation's users, and what a probe finds. */
#include <string.h>

#include "proto/text.h"
#include "tests/sim/sim_client.h"

const ProbeReply *sim_client_facts(void)
{
    static ModelConfig config;
    static ModelFacts model;
    static DataFacts data;
    static DataFacts *sources[1] = {&data};
    static ProbeReply facts;
    if (!facts.base.descriptor) {
        probe_reply__init(&facts);
        model_facts__init(&model);
        model_config__init(&config);
        data_facts__init(&data);
        config.model_type = (char *)"llama";
        config.num_hidden_layers = 2;
        config.hidden_size = 64;
        config.intermediate_size = 136;
        config.num_attention_heads = 8;
        config.num_key_value_heads = 4;
        config.head_dim = 8;
        config.vocab_size = 256;
        config.has_num_hidden_layers = config.has_hidden_size = 1;
        config.has_intermediate_size = config.has_num_attention_heads = 1;
        config.has_num_key_value_heads = config.has_head_dim = config.has_vocab_size = 1;
        model.config = &config;
        model.path = (char *)"/models/llama-tiny";
        data.path = (char *)"/data/train.bin";
        data.has_num_tokens = 1;
        data.num_tokens = 12 * 2400 + 1;
        facts.model = &model;
        facts.n_sources = 1;
        facts.sources = sources;
    }
    return &facts;
}

JobSpec *sim_client_spec(const struct sim *s, const struct sim_job *j)
{
    JobSpec spec = JOB_SPEC__INIT;
    ModelSpec model = MODEL_SPEC__INIT;
    DataSpec data = DATA_SPEC__INIT;
    SourceSpec source = SOURCE_SPEC__INIT, *sources[1] = {&source};
    TrainingSpec training = TRAINING_SPEC__INIT;
    OptimizerSpec optimizer = OPTIMIZER_SPEC__INIT;
    ParallelChoice parallel = PARALLEL_CHOICE__INIT;
    ParallelSpec layout = PARALLEL_SPEC__INIT;
    RetrySpec retry = RETRY_SPEC__INIT;
    ResourcesSpec resources = RESOURCES_SPEC__INIT;
    char *nodes[1] = {j->pin >= 0 ? s->cluster->names[j->pin] : NULL};
    int64_t after[2];
    spec.name = (char *)(uintptr_t)j->name;
    spec.model = &model;
    model.path = (char *)"/models/llama-tiny";
    spec.data = &data;
    data.n_train = 1;
    data.train = sources;
    source.path = (char *)"/data/train.bin";
    source.format = (char *)"u16";
    spec.training = &training;
    training.optimizer = &optimizer;
    training.has_steps = training.has_seq_len = training.has_global_batch_size = 1;
    training.steps = j->total_steps;
    training.seq_len = 12;
    training.global_batch_size = 12 % j->num_ranks == 0 ? 12 : j->num_ranks;
    spec.parallel = &parallel;
    parallel.choice_case = PARALLEL_CHOICE__CHOICE_LAYOUT;
    parallel.layout = &layout;
    layout.has_data = 1;
    layout.data = j->num_ranks;
    spec.retry = &retry;
    retry.has_max_restarts = retry.has_reset_after_steps = 1;
    retry.max_restarts = j->max_restarts;
    retry.reset_after_steps = s->profile->reset_after_steps;
    retry.has_first_backoff_s = retry.has_max_backoff_s = 1;
    retry.first_backoff_s = 1;
    retry.max_backoff_s = SIM_BACKOFF_MAX_MS / 1000;
    if (j->pin >= 0) {
        spec.resources = &resources;
        resources.n_nodes = 1;
        resources.nodes = nodes;
    }
    for (int32_t i = 0; i < j->num_after; i++) {
        after[i] = j->after[i]->id;
    }
    spec.n_after = (size_t)j->num_after;
    spec.after = after;
    spec.has_hold = j->held_new;
    spec.hold = j->held_new;
    spec.has_time_limit_s = j->limit_s > 0;
    spec.time_limit_s = j->limit_s;
    return (JobSpec *)text_clone(&spec.base);
}
