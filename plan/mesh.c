#include "plan/mesh.h"

static int check_axis(const char *name, int64_t size, struct error *err)
{
    if (size < 1 || size > MESH_MAX_RANKS) {
        return error_set(err, ERR_INVALID_ARGUMENT, "parallel.%s: %lld; it has to be 1 to %d", name,
                         (long long)size, MESH_MAX_RANKS);
    }
    return 0;
}

int mesh_init(Mesh *out, const ParallelSpec *layout, struct error *err)
{
    if (check_axis("data", layout->data, err) != 0 ||
        check_axis("pipeline", layout->pipeline, err) != 0 ||
        check_axis("context", layout->context, err) != 0 ||
        check_axis("tensor", layout->tensor, err) != 0 ||
        check_axis("expert", layout->expert, err) != 0) {
        return -1;
    }
    /* Four factors of at most 2^17: the product fits only step by step. */
    const int64_t sizes[] = {layout->data, layout->pipeline, layout->context, layout->tensor};
    int64_t num_ranks = 1;
    for (int i = 0; i < 4; i++) {
        num_ranks *= sizes[i];
        if (num_ranks > MESH_MAX_RANKS) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "parallel: data %lld x pipeline %lld x context %lld x tensor %lld is "
                             "more than %d ranks",
                             (long long)sizes[0], (long long)sizes[1], (long long)sizes[2],
                             (long long)sizes[3], MESH_MAX_RANKS);
        }
    }
    int64_t carved = layout->data * layout->context, e = layout->expert;
    if (carved % e != 0 || (layout->context % e != 0 && e % layout->context != 0)) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "parallel.expert: %lld can't be carved from data %lld x context %lld",
                         (long long)e, (long long)layout->data, (long long)layout->context);
    }
    mesh__init(out);
    out->has_data = out->has_pipeline = out->has_context = out->has_tensor = 1;
    out->has_expert = out->has_num_ranks = 1;
    out->data = layout->data;
    out->pipeline = layout->pipeline;
    out->context = layout->context;
    out->tensor = layout->tensor;
    out->expert = layout->expert;
    out->num_ranks = num_ranks;
    return 0;
}

struct mesh_coord mesh_coord(const Mesh *mesh, int32_t rank)
{
    ASSERT(rank >= 0 && rank < mesh->num_ranks);
    struct mesh_coord c;
    int64_t rest = rank;
    c.tensor = (int32_t)(rest % mesh->tensor);
    rest /= mesh->tensor;
    c.context = (int32_t)(rest % mesh->context);
    rest /= mesh->context;
    c.pipeline = (int32_t)(rest % mesh->pipeline);
    c.data = (int32_t)(rest / mesh->pipeline);
    return c;
}

int32_t mesh_rank(const Mesh *mesh, struct mesh_coord c)
{
    ASSERT(c.data >= 0 && c.data < mesh->data && c.pipeline >= 0 && c.pipeline < mesh->pipeline);
    ASSERT(c.context >= 0 && c.context < mesh->context && c.tensor >= 0 && c.tensor < mesh->tensor);
    return (int32_t)(((c.data * mesh->pipeline + c.pipeline) * mesh->context + c.context) *
                         mesh->tensor +
                     c.tensor);
}

/* e neighbours in the count of data x context, where context moves first. */
static int32_t expert_group(const Mesh *mesh, struct mesh_coord c, int32_t *ranks)
{
    int32_t e = (int32_t)mesh->expert, context = (int32_t)mesh->context;
    int32_t place = c.data * context + c.context, first = place / e * e;
    for (int32_t i = 0; i < e; i++) {
        c.data = (first + i) / context;
        c.context = (first + i) % context;
        ranks[i] = mesh_rank(mesh, c);
    }
    return e;
}

int32_t mesh_group(const Mesh *mesh, Axis axis, int32_t rank, int32_t *ranks)
{
    struct mesh_coord c = mesh_coord(mesh, rank);
    int32_t *moving = NULL;
    int64_t size = 1;
    switch (axis) {
    case AXIS_DATA:
        moving = &c.data;
        size = mesh->data;
        break;
    case AXIS_PIPELINE:
        moving = &c.pipeline;
        size = mesh->pipeline;
        break;
    case AXIS_CONTEXT:
        moving = &c.context;
        size = mesh->context;
        break;
    case AXIS_TENSOR:
        moving = &c.tensor;
        size = mesh->tensor;
        break;
    case AXIS_EXPERT:
        return expert_group(mesh, c, ranks);
    default:
        break;
    }
    if (!moving) {
        ranks[0] = rank;
        return 1;
    }
    for (int32_t i = 0; i < size; i++) {
        *moving = i;
        ranks[i] = mesh_rank(mesh, c);
    }
    return (int32_t)size;
}
