#include "runtime/rank/peers.h"

#include <string.h>

#include "base/clock.h"
#include "kernels/plugin.h"
#include "runtime/comm/comm_provider.h"

/* ---- device -----------------------------------------------------------------------------------
 */

int peers_open_device(struct rank *r, struct error *err)
{
    const Plan *plan = r->plan;
    struct kernels_options options = {
        .backend = plan->backend,
        .num_threads = plan->threads_per_rank,
        .device = (size_t)r->idx < plan->n_placement ? plan->placement[r->idx]->device : 0,
    };
    if (kernels_open(&options, &r->dev, &r->kernels, err) != 0)
        return -1;
    r->host = r->dev;
    if (!DEVICE_IS_HOST(r->dev)) {
        r->host = NULL;
        if (device_open_cpu(&r->host, 1, err) != 0)
            return -1;
    }
    r->late = r->options->queued_compute || !DEVICE_IS_HOST(r->dev);
    enum stream_kind kind = r->options->queued_compute ? STREAM_QUEUE : STREAM_INLINE;
    return r->dev->ops->stream_new(r->dev, kind, &r->compute, err);
}

/* ---- the communicators' id --------------------------------------------------------------------
 */

static int send_id(struct rank *r, const struct comm_provider *provider, struct error *err)
{
    uint8_t id[COMM_ID_MAX];
    if (provider->id_bytes > sizeof(id))
        return error_set(err, ERR_INTERNAL, "%s: its id has %zu bytes, more than %d",
                         provider->name, provider->id_bytes, COMM_ID_MAX);
    if (provider->make_id(id, err) != 0)
        return -1;
    CommId message = COMM_ID__INIT;
    message.has_id = 1;
    message.id.data = id;
    message.id.len = provider->id_bytes;
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_COMM_ID;
    up.comm_id = &message;
    int rc = link_send(r->options->link, &up, err);
    explicit_bzero(id, sizeof(id));
    return rc;
}

/* Rank 0's way is the same as the others': over the controller. Meanwhile the gang may end. */
static int await_id(struct rank *r, struct error *err)
{
    struct comm_board *board = comm_host_board(r->host_world);
    int64_t begin_ms = clock_mono_ms();
    while (r->commands.comm_id_len == 0) {
        int64_t waited_ms = clock_mono_ms() - begin_ms;
        if (board->ops->aborted(board, "waiting for the id", err))
            return -1;
        if (waited_ms >= r->options->deadline_ms)
            return error_set(err, ERR_DEADLINE_EXCEEDED,
                             "rank %d has waited %.1f s for the communicators' id, which rank 0 "
                             "makes",
                             r->idx, (double)waited_ms * 1e-3);
        if (commands_await(&r->commands, r->options->link, 100, err) != 0)
            return -1;
    }
    return 0;
}

static int open_accelerator_world(struct rank *r, struct error *err)
{
    const struct plugin *plugin;
    if (plugin_cuda(&plugin, err) != 0)
        return -1;
    const struct comm_provider *provider = plugin->comm;
    if (provider == NULL)
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "%s was built without NCCL: only one rank can train on it", plugin->name);
    if ((r->idx == 0 && send_id(r, provider, err) != 0) || await_id(r, err) != 0)
        return -1;
    if (r->commands.comm_id_len != provider->id_bytes)
        return error_set(err, ERR_INVALID_ARGUMENT, "an id of %zu bytes came, %s has %zu",
                         r->commands.comm_id_len, provider->name, provider->id_bytes);
    const struct comm_provider_options options = {
        .id = r->commands.comm_id,
        .rank = r->idx,
        .num_ranks = (int32_t)r->plan->mesh->num_ranks,
        .deadline_ms = r->options->deadline_ms,
        .hosts = r->hosts,
        .board = comm_host_board(r->host_world),
        .dev = r->dev,
    };
    int rc = provider->open(&options, &r->world, err);
    explicit_bzero(r->commands.comm_id, sizeof(r->commands.comm_id));
    return rc;
}

/* ---- communicators ----------------------------------------------------------------------------
 */

static int open_worlds(struct rank *r, int32_t num_ranks, struct error *err)
{
    const Plan *plan = r->plan;
    if (comm_host_open(&r->host_world, r->options->segment_fd, r->idx, num_ranks,
                       r->options->deadline_ms, err) != 0)
        return -1;
    for (int32_t i = 0; i < num_ranks && (size_t)i < plan->n_placement; i++)
        r->hosts[i] = plan->placement[i]->node;
    comm_host_set_hosts(r->host_world, r->hosts);
    if (!DEVICE_IS_HOST(r->dev))
        return open_accelerator_world(r, err);
    r->world = comm_host_as_world(r->host_world);
    return 0;
}

int peers_open_axes(struct rank *r, struct error *err)
{
    int32_t num_ranks = (int32_t)r->plan->mesh->num_ranks;
    if (num_ranks > COMM_HOST_MAX_RANKS)
        return error_set(err, ERR_UNIMPLEMENTED, "at most %d ranks on one host",
                         COMM_HOST_MAX_RANKS);
    if (num_ranks > 1 && open_worlds(r, num_ranks, err) != 0)
        return -1;
    const struct axes_means means = {
        .world = r->world,
        .dev = r->dev,
        .host_world = comm_host_as_world(r->host_world),
        .host = r->host,
    };
    return axes_open(&r->axes, r->plan, r->idx, &means, err);
}

void peers_let_go(struct rank *r, const char *reason)
{
    if (r->host_world != NULL)
        comm_host_abort(r->host_world, reason);
    if (r->world != NULL)
        r->world->ops->abort(r->world, reason);
}

/* The accelerator's world first: it writes on the segment's board. */
void peers_close(struct rank *r)
{
    bool is_own = r->world != NULL && r->world != comm_host_as_world(r->host_world);
    if (is_own)
        r->world->ops->close(r->world);
    if (r->dev != NULL && r->compute != NULL)
        r->dev->ops->stream_free(r->dev, r->compute);
    comm_host_close(r->host_world);
    if (r->host != NULL && r->host != r->dev)
        r->host->ops->close(r->host);
    if (r->dev != NULL)
        r->dev->ops->close(r->dev);
}
