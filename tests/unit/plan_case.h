/* A checked job with its facts and cluster, as a plan gets it, for tests to change and plan. All
 * memory is inside; nothing to free. */
#ifndef TANDEM_TESTS_UNIT_PLAN_CASE_H
#define TANDEM_TESTS_UNIT_PLAN_CASE_H

#include "plan/plan.h"

#define PLAN_CASE_MAX_NODES 4096
#define PLAN_CASE_MAX_DEVICES 32768

struct plan_case {
    JobSpec spec;
    ModelSpec model_spec;
    DataSpec data;
    SourceSpec source;
    SourceSpec *sources[1];
    TrainingSpec training;
    OptimizerSpec optimizer;
    ParallelChoice parallel;
    ParallelSpec layout;
    ResourcesSpec resources;
    ModelConfig config;
    ModelFacts facts;
    DataFacts data_facts;
    const DataFacts *data_facts_list[1];
    ClusterSpec cluster;
    NodeInfo *nodes;
    NodeInfo **node_list;
    DeviceInfo *devices;
    DeviceInfo **device_list;
    char (*names)[16];
    struct plan_input input;
};

/* llama-tiny, one CPU node with 4 devices and 8 cores, data 2, 3 steps of 8 samples of 12 tokens.
 */
struct plan_case *plan_case_new(void);
void plan_case_free(struct plan_case *c);
void plan_case_config(struct plan_case *c, int64_t layers, int64_t d, int64_t f, int64_t h,
                      int64_t kv, int64_t v);
void plan_case_cluster(struct plan_case *c, int nodes, int devices_each, int32_t cores,
                       int64_t device_mem_bytes);
/* Fails the test where the plan is refused. */
Plan *plan_case_build(struct plan_case *c);
/* Fails the test where it isn't, or where the text lacks part. */
void plan_case_refused(struct plan_case *c, const char *part);

#endif
