#include "solo.h"

#include <stdio.h>
#include <stdlib.h>

#include "model/family.h"

static void check(int rc, const struct error *err)
{
    if (rc != 0)
        fprintf(stderr, "%s\n", err->text);
    ASSERT(rc == 0);
}

struct param_table solo_table(ModelConfig *config, int32_t tensor, bool sequence)
{
    struct arena arena = {0};
    struct param_table table;
    ModelFacts facts = MODEL_FACTS__INIT;
    Stage stage = STAGE__INIT, *stages[] = {&stage};
    Mesh mesh = MESH__INIT;
    Plan plan = PLAN__INIT;
    struct error err = {0};
    facts.config = config;
    stage.layer_end = config->num_hidden_layers;
    mesh.tensor = mesh.num_ranks = tensor;
    plan.model = &facts;
    plan.mesh = &mesh;
    plan.stages = stages;
    plan.n_stages = 1;
    check(
        family_find(config->model_type)->params(config, &arena, &plan.params, &plan.n_params, &err),
        &err);
    /* As the plan does. */
    for (size_t i = 0; sequence && tensor > 1 && i < plan.n_params; i++) {
        if (plan.params[i]->on_rows) {
            plan.params[i]->has_tensor_grad = 1;
            plan.params[i]->tensor_grad = SPREAD_PARTIAL;
        }
    }
    check(params_expand(&plan, 0, &table, &err), &err);
    arena_free(&arena);
    return table;
}

static void open_comm(struct solo *s, const struct solo_options *o, int32_t tensor)
{
    struct error err = {0};
    int32_t members[COMM_HOST_MAX_RANKS];
    for (int32_t i = 0; i < tensor; i++)
        members[i] = i;
    check(comm_host_open(&s->world, o->segment_fd, o->tensor_idx, tensor, 60000, &err), &err);
    check(comm_host_comm_new(s->world, s->dev, members, tensor, &s->comm, &err), &err);
}

static void open_model(struct solo *s, const struct solo_options *o, int32_t tensor)
{
    struct error err = {0};
    check(arenas_open(&s->arenas, NULL, s->dev, comm_host_as_world(s->world), &err), &err);
    const struct tp tp = {
        .comm = s->comm,
        .stream = s->stream,
        .dtype = o->dtype,
        .size = tensor,
        .rank = o->tensor_idx,
        .sequence = o->sequence,
    };
    const struct model_options options = {
        .config = o->config,
        .table = &s->table,
        .dtype = o->dtype,
        .micro_batch_size = o->micro,
        .seq_len = o->seq_len,
        .dev = s->dev,
        .kernels = s->kernels,
        .stream = s->stream,
        .tp = tensor > 1 ? &tp : NULL,
        .trains = o->trains,
        .arenas = s->arenas,
    };
    check(model_new(&s->model, &options, &err), &err);
    model_bind_whole(s->model, s->weights, s->grads);
}

void solo_open(struct solo *s, const struct solo_options *o)
{
    struct error err = {0};
    int32_t tensor = o->tensor > 0 ? o->tensor : 1;
    *s = (struct solo){.dtype = o->dtype};
    s->num_units = family_num_units(o->config);
    check(kernels_open(&(struct kernels_options){o->backend, 1, 0}, &s->dev, &s->kernels, &err),
          &err);
    check(s->dev->ops->stream_new(s->dev, STREAM_INLINE, &s->stream, &err), &err);
    s->table = solo_table(o->config, tensor, o->sequence);
    size_t bytes = (size_t)s->table.flat_numel * dtype_size(o->dtype);
    s->weights = s->dev->ops->alloc(s->dev, bytes, MEM_DEVICE);
    s->grads = o->trains ? s->dev->ops->alloc(s->dev, bytes, MEM_DEVICE) : NULL;
    s->loss = s->dev->ops->alloc(s->dev, sizeof(*s->loss), MEM_DEVICE);
    ASSERT(s->weights != NULL && s->loss != NULL && (s->grads != NULL || !o->trains));
    if (tensor > 1)
        open_comm(s, o, tensor);
    open_model(s, o, tensor);
}

void solo_close(struct solo *s)
{
    const struct device_ops *ops = s->dev->ops;
    model_free(s->model);
    arenas_free(s->arenas);
    if (s->comm != NULL)
        s->comm->ops->free(s->comm);
    comm_host_close(s->world);
    ops->free(s->dev, s->weights);
    if (s->grads != NULL)
        ops->free(s->dev, s->grads);
    ops->free(s->dev, s->loss);
    ops->stream_free(s->dev, s->stream);
    params_free(&s->table);
    ops->close(s->dev);
}

void solo_run(struct solo *s, const struct batch *batch, double dloss)
{
    struct error err = {0};
    model_set_batch(s->model, batch);
    check(model_forward(s->model, 0, s->num_units, dloss, s->loss, &err), &err);
    if (s->grads != NULL)
        check(model_backward(s->model, 0, s->num_units, false, &err), &err);
}

double solo_number(enum dtype dtype, const void *data, int64_t i)
{
    return dtype == DTYPE_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}
