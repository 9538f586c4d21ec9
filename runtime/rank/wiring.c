#include "runtime/rank/wiring.h"

#include <stdlib.h>
#include <string.h>

#include "plan/mesh.h"
#include "plan/plan.h"
#include "plan/spec_check.h"
#include "runtime/optim/optimizer.h"
#include "runtime/rank/passes.h"
#include "runtime/rank/peers.h"
#include "runtime/rank/replay.h"
#include "runtime/rank/weights.h"
#include "runtime/rank/words.h"

/* ---- place ---------------------------------------------------------------------
 */

static enum dtype dtype_of(const char *precision)
{
    return strcmp(precision, "fp64") == 0   ? DTYPE_F64
           : strcmp(precision, "bf16") == 0 ? DTYPE_BF16
                                            : DTYPE_F32;
}

static int find_place(struct rank *r, struct error *err)
{
    const Mesh *mesh = r->plan->mesh;
    if (r->idx < 0 || r->idx >= mesh->num_ranks)
        return error_set(err, ERR_INVALID_ARGUMENT, "there is no rank %d of %lld", r->idx,
                         (long long)mesh->num_ranks);
    if (plan_check_received(r->plan, err) != 0)
        return -1;
    int32_t stage = mesh_coord(mesh, r->idx).pipeline;
    r->stage = r->plan->stages[stage];
    r->num_units = (int32_t)r->plan->model->config->num_hidden_layers + 2;
    r->dtype = dtype_of(r->plan->spec->training->precision);
    return params_expand(r->plan, stage, &r->table, err);
}

/* ---- state and model --------------------------------------------------------------------------
 */

static int open_store(struct rank *r, struct error *err)
{
    struct store_options options = {
        .dev = r->dev,
        .kernels = r->kernels,
        .compute = r->compute,
        .axes = &r->axes,
        .arenas = r->arenas,
        .plan = r->plan,
        .stage = r->stage,
        .table = &r->table,
        .dtype = r->dtype,
        .moments = optimizer_has_moments(r->plan->spec->training->optimizer),
    };
    return store_new(&r->store, &options, err);
}

static int open_buckets(struct rank *r, struct error *err)
{
    r->grads_at = calloc(r->stage->n_buckets, sizeof(*r->grads_at));
    if (r->grads_at == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the list of buckets");
    return 0;
}

static int open_model(struct rank *r, struct error *err)
{
    const TrainingSpec *training = r->plan->spec->training;
    const ParallelSpec *layout = r->plan->spec->parallel->layout;
    const struct tp tp = {
        .comm = r->axes.tensor,
        .stream = r->compute,
        .dtype = r->dtype,
        .size = (int32_t)r->plan->mesh->tensor,
        .rank = r->axes.coord.tensor,
        .sequence = r->axes.tensor != NULL && layout->sequence_parallel,
    };
    struct model_options options = {
        .config = r->plan->model->config,
        .table = &r->table,
        .dtype = r->dtype,
        .micro_batch_size = training->micro_batch_size,
        .seq_len = training->seq_len,
        .dev = r->dev,
        .kernels = r->kernels,
        .stream = r->compute,
        .tp = &tp,
        .trains = true,
        .arenas = r->arenas,
    };
    return model_new(&r->model, &options, err);
}

static void bind_weights(void *arg, int32_t bucket, void *base)
{
    struct rank *r = arg;
    model_bind_weights(r->model, bucket, base);
}

static void bind_grads(void *arg, int32_t bucket, void *base)
{
    struct rank *r = arg;
    r->grads_at[bucket] = base;
    model_bind_grads(r->model, bucket, base);
}

/* ---- data and saver ---------------------------------------------------------------------------
 */

/* Checked again here, where the files are opened: a link may have been turned since the probe. */
struct roots wiring_roots(const struct rank *r)
{
    const Start *start = r->options->start->start;
    struct roots roots = {.hidden = start->private_dir};
    if (start->roots != NULL) {
        roots.limited = true;
        roots.tenant = start->roots->tenant;
        roots.dirs = (const char *const *)start->roots->read;
        roots.num = start->roots->n_read;
    }
    return roots;
}

static int open_feed(struct rank *r, struct error *err)
{
    struct roots roots = wiring_roots(r);
    struct feed_options options = {
        .plan = r->plan,
        .rank = r->idx,
        .roots = &roots,
        .dev = r->dev,
        .compute = r->compute,
        .arenas = r->arenas,
    };
    return feed_open(&r->feed, &options, err);
}

static int open_saver(struct rank *r, struct error *err)
{
    const CheckpointSpec *checkpoint = r->plan->spec->checkpoint;
    struct saver_options options = {
        .dev = r->dev,
        .host = r->host,
        .compute = r->compute,
        .arenas = r->arenas,
        .comm = r->axes.save,
        .report = r->report,
        .job_dir = r->options->start->job_dir,
        .config = r->plan->model->config,
        .live = weights_state(r),
        /* Where saves come only with the end there is nothing to overlap them with. */
        .async = checkpoint->async && spec_checkpoint_interval(r->plan->spec) > 0,
    };
    return saver_new(&r->saver, &options, err);
}

/* ---- all of it --------------------------------------------------------------------------------
 */

int wiring_open(struct rank *r, struct error *err)
{
    if (find_place(r, err) != 0 || peers_open_device(r, err) != 0 || peers_open_axes(r, err) != 0 ||
        arenas_open(&r->arenas, r->plan->memory, r->dev, r->world, err) != 0 ||
        open_store(r, err) != 0 || words_open(r, err) != 0 || open_buckets(r, err) != 0 ||
        open_feed(r, err) != 0 || open_model(r, err) != 0 || open_saver(r, err) != 0 ||
        passes_open(r, err) != 0)
        return -1;
    store_bind(r->store, bind_weights, bind_grads, r);
    return 0;
}

/* The streams first: what they run uses the rest. After a failure compute may still be on its way,
 * to where the others' abort ends it. */
void wiring_close(struct rank *r)
{
    if (r->dev != NULL && r->compute != NULL)
        r->dev->ops->stream_sync(r->dev, r->compute, NULL);
    replay_free(r->replay);
    saver_free(r->saver);
    store_free(r->store);
    model_free(r->model);
    feed_close(r->feed);
    if (r->dev != NULL)
        words_close(r);
    axes_close(&r->axes);
    free(r->grads_at);
    arenas_free(r->arenas);
    peers_close(r);
    params_free(&r->table);
}
