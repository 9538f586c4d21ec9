/* A model with whole weights and gradients and nothing around it: no plan, no store, no trainer. Of
 * T tensor ranks it is one, whose part of the weights the test puts there. Uses ASSERT, so that it
 * runs on any thread. */
#ifndef TANDEM_TESTS_PARALLEL_SOLO_H
#define TANDEM_TESTS_PARALLEL_SOLO_H

#include "runtime/comm/comm_host.h"
#include "runtime/layers/model.h"

struct solo_options {
    ModelConfig *config;
    const char *backend;
    enum dtype dtype;
    int64_t micro, seq_len;
    bool trains;
    int32_t tensor, tensor_idx; /* 0 = 1 */
    bool sequence;
    int segment_fd; /* of a segment of T ranks */
};

struct solo {
    struct device *dev;
    const struct kernels *kernels;
    struct stream *stream;
    struct comm_host_world *world;
    struct comm *comm;
    struct arenas *arenas;
    struct param_table table;
    enum dtype dtype;
    void *weights, *grads; /* flat */
    double *loss;
    struct model *model;
    int32_t num_units;
};

void solo_open(struct solo *s, const struct solo_options *options);
void solo_close(struct solo *s);
/* Forward, and where the model trains backward; fails loudly. */
void solo_run(struct solo *s, const struct batch *batch, double dloss);

/* The table of a model of one stage on T tensor ranks; freed with params_free. */
struct param_table solo_table(ModelConfig *config, int32_t tensor, bool sequence);
/* Element i of numbers of this type. */
double solo_number(enum dtype dtype, const void *data, int64_t i);

#endif
