#include "runtime/parallel/axes.h"

#include <stdio.h>
#include <string.h>

#include "plan/layout_rules.h"

/* A group of ranks on its way to becoming a communicator. */
struct group {
    int32_t ranks[COMM_HOST_MAX_RANKS];
    int32_t num;
    char name[COMM_HOST_NAME_MAX];
};

struct maker {
    const Plan *plan;
    struct axes *axes;
    struct comm_world *world;
    struct device *dev;
};

/* ---- who belongs together ---------------------------------------------------------------------
 */

/* first, first + step, ...: num of a line of ranks. */
static void pick(const int32_t *line, int32_t first, int32_t step, int32_t num, struct group *g)
{
    g->num = num;
    for (int32_t i = 0; i < num; i++)
        g->ranks[i] = line[first + i * step];
}

/* "the shard group (data 4-7)", "the replica group (data 0, 4, 8)" */
static void name(struct group *g, const char *what, const char *of, int32_t first, int32_t step)
{
    int32_t last = first + (g->num - 1) * step;
    const char *more = g->num > 3 ? ", ..., " : g->num == 3 ? ", " : "";
    if (step == 1)
        snprintf(g->name, sizeof(g->name), "the %s group (%s %d-%d)", what, of, first, last);
    else if (g->num == 2)
        snprintf(g->name, sizeof(g->name), "the %s group (%s %d, %d)", what, of, first, last);
    else
        snprintf(g->name, sizeof(g->name), "the %s group (%s %d, %d%s%d)", what, of, first,
                 first + step, more, last);
}

static void tensor_group(const struct maker *m, struct group *g)
{
    g->num = mesh_group(m->plan->mesh, AXIS_TENSOR, m->axes->rank, g->ranks);
    name(g, "tensor", "ranks", g->ranks[0], 1); /* tensor peers are neighbours */
}

/* KV head k of K lies on tensor ranks k * T / K ... (k + 1) * T / K - 1. */
static void kv_group(const struct maker *m, struct group *g)
{
    const Mesh *mesh = m->plan->mesh;
    int64_t heads = m->plan->model->config->num_key_value_heads;
    int32_t line[COMM_HOST_MAX_RANKS];
    mesh_group(mesh, AXIS_TENSOR, m->axes->rank, line);
    int32_t copies = heads < mesh->tensor ? (int32_t)(mesh->tensor / heads) : 1;
    pick(line, m->axes->coord.tensor / copies * copies, 1, copies, g);
    name(g, "KV head", "ranks", g->ranks[0], 1);
}

static void shard_group(const struct maker *m, struct group *g)
{
    const struct axes *a = m->axes;
    int32_t line[COMM_HOST_MAX_RANKS], first = a->replica_idx * a->shard_size;
    mesh_group(m->plan->mesh, AXIS_DATA, a->rank, line);
    pick(line, first, 1, a->shard_size, g);
    name(g, "shard", "data", first, 1);
}

static void replica_group(const struct maker *m, struct group *g)
{
    const struct axes *a = m->axes;
    int32_t line[COMM_HOST_MAX_RANKS];
    mesh_group(m->plan->mesh, AXIS_DATA, a->rank, line);
    pick(line, a->shard_idx, a->shard_size, a->num_replicas, g);
    name(g, a->shard_size == 1 ? "data" : "replica", "data", a->shard_idx, a->shard_size);
}

static void all_ranks(const struct maker *m, struct group *g)
{
    g->num = m->axes->num_ranks;
    for (int32_t i = 0; i < g->num; i++)
        g->ranks[i] = i;
    snprintf(g->name, sizeof(g->name), "all ranks");
}

/* ---- making them ------------------------------------------------------------------------------
 */

typedef void (*group_fn)(const struct maker *m, struct group *g);

static int make(const struct maker *m, group_fn members, bool background, struct comm **out,
                struct error *err)
{
    struct group g;
    members(m, &g);
    if (g.num == 1)
        return 0;
    return m->world->ops->comm_new(m->world, m->dev, g.ranks, g.num, g.name, background, out, err);
}

static int find_place(struct axes *a, const Plan *plan, int32_t rank, struct error *err)
{
    const Mesh *mesh = plan->mesh;
    if (mesh->num_ranks > COMM_HOST_MAX_RANKS)
        return error_set(err, ERR_UNIMPLEMENTED, "at most %d ranks on one host",
                         COMM_HOST_MAX_RANKS);
    if (rank < 0 || rank >= mesh->num_ranks)
        return error_set(err, ERR_INVALID_ARGUMENT, "there is no rank %d of %lld", rank,
                         (long long)mesh->num_ranks);
    a->rank = rank;
    a->num_ranks = (int32_t)mesh->num_ranks;
    a->coord = mesh_coord(mesh, rank);
    int64_t shards = layout_shards(plan->spec->parallel->layout);
    int64_t heads = plan->model->config->num_key_value_heads;
    if (shards < 1 || mesh->data % shards != 0)
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "plan: %lld data ranks can't be in blocks of %lld", (long long)mesh->data,
                         (long long)shards);
    if (heads < 1 || (heads < mesh->tensor && mesh->tensor % heads != 0))
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "plan: %lld KV heads can't be copied to %lld tensor ranks",
                         (long long)heads, (long long)mesh->tensor);
    a->shard_size = (int32_t)shards;
    a->num_replicas = (int32_t)(mesh->data / shards);
    a->shard_idx = a->coord.data % a->shard_size;
    a->replica_idx = a->coord.data / a->shard_size;
    return 0;
}

int axes_open(struct axes *out, const Plan *plan, int32_t rank, const struct axes_means *means,
              struct error *err)
{
    struct axes a = {0};
    const struct maker m = {.plan = plan, .axes = &a, .world = means->world, .dev = means->dev};
    const struct maker host = {
        .plan = plan, .axes = &a, .world = means->host_world, .dev = means->host};
    if (find_place(&a, plan, rank, err) != 0)
        return -1;
    ASSERT((m.world != NULL && host.world != NULL) || a.num_ranks == 1);
    /* One order on all ranks: communicators with the same members are told apart by it. */
    if (make(&m, tensor_group, false, &a.tensor, err) != 0 ||
        make(&m, kv_group, false, &a.kv_replicas, err) != 0 ||
        make(&m, shard_group, false, &a.shard, err) != 0 ||
        make(&m, replica_group, false, &a.replicas, err) != 0 ||
        make(&m, all_ranks, false, &a.world, err) != 0 ||
        make(&m, shard_group, false, &a.gather, err) != 0 ||
        make(&host, all_ranks, true, &a.save, err) != 0) {
        axes_close(&a);
        return -1;
    }
    *out = a;
    return 0;
}

void axes_close(struct axes *a)
{
    struct comm *comms[] = {a->tensor, a->kv_replicas, a->shard, a->replicas,
                            a->world,  a->gather,      a->save};
    for (size_t i = 0; i < sizeof(comms) / sizeof(*comms); i++)
        if (comms[i] != NULL)
            comms[i]->ops->free(comms[i]);
    *a = (struct axes){0};
}
