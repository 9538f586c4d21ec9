/* A rank's life: open what the plan names, load or draw the weights, train, save, export, close. */
#include "runtime/rank/rank.h"

#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "plan/mesh.h"
#include "plan/plan.h"
#include "plan/spec_check.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/rank/state.h"
#include "runtime/rank/trainer.h"

/* ---- set-up -----------------------------------------------------------------------------------
 */

static int find_place(struct rank *r, struct error *err)
{
    const Mesh *mesh = r->plan->mesh;
    if (r->idx < 0 || r->idx >= mesh->num_ranks)
        return error_set(err, ERR_INVALID_ARGUMENT, "there is no rank %d of %lld", r->idx,
                         (long long)mesh->num_ranks);
    if (plan_check_built(r->plan, err) != 0)
        return -1;
    if (mesh->data != mesh->num_ranks || r->plan->n_stages != 1)
        return error_set(err, ERR_UNIMPLEMENTED, "this runtime knows the data axis alone");
    struct mesh_coord coord = mesh_coord(mesh, r->idx);
    r->data_idx = coord.data;
    r->data_size = (int32_t)mesh->data;
    r->stage = r->plan->stages[coord.pipeline];
    r->dtype = strcmp(r->plan->spec->training->precision, "fp64") == 0 ? DTYPE_F64 : DTYPE_F32;
    return params_expand(r->plan, coord.pipeline, &r->table, err);
}

static int open_device(struct rank *r, struct error *err)
{
    if (kernels_open(r->plan->backend, r->plan->threads_per_rank, &r->dev, &r->kernels, err) != 0)
        return -1;
    return r->dev->ops->stream_new(r->dev, STREAM_INLINE, &r->compute, err);
}

/* Two communicators of the data axis: gradients and checkpoints move at the same time. */
static int open_comm(struct rank *r, struct error *err)
{
    if (r->data_size == 1)
        return 0;
    int32_t members[COMM_HOST_MAX_RANKS];
    if (r->data_size > COMM_HOST_MAX_RANKS)
        return error_set(err, ERR_UNIMPLEMENTED, "at most %d ranks on one host",
                         COMM_HOST_MAX_RANKS);
    int32_t num = mesh_group(r->plan->mesh, AXIS_DATA, r->idx, members);
    if (comm_host_open(&r->world, r->options->segment_fd, r->idx, (int32_t)r->plan->mesh->num_ranks,
                       r->options->deadline_ms, err) != 0 ||
        comm_host_comm_new(r->world, r->dev, members, num, &r->grad_comm, err) != 0)
        return -1;
    return comm_host_comm_new(r->world, r->dev, members, num, &r->save_comm, err);
}

/* Zeroed; what is summed over ranks lies in the shared segment, so that it is summed in place. */
static void *alloc_buffer(struct rank *r, size_t bytes, bool summed)
{
    if (summed && r->world != NULL)
        return comm_host_alloc(r->world, bytes);
    return r->dev->ops->alloc(r->dev, bytes, MEM_DEVICE);
}

static int alloc_buffers(struct rank *r, struct error *err)
{
    const TrainingSpec *training = r->plan->spec->training;
    size_t flat = (size_t)r->table.flat_numel * dtype_size(r->dtype);
    size_t batch = (size_t)(2 * training->micro_batch_size * training->seq_len) * sizeof(int32_t);
    bool moments = optimizer_has_moments(training->optimizer);
    r->num_words = WORD_RANKS + r->data_size;
    r->weights = alloc_buffer(r, flat, false);
    r->grads = alloc_buffer(r, flat, true);
    r->words = alloc_buffer(r, (size_t)r->num_words * sizeof(*r->words), true);
    r->exp_avg = moments ? alloc_buffer(r, flat, false) : NULL;
    r->exp_avg_sq = moments ? alloc_buffer(r, flat, false) : NULL;
    r->batch = alloc_buffer(r, batch, false);
    r->batch_host = r->dev->ops->alloc(r->dev, batch, MEM_HOST);
    if (r->weights == NULL || r->grads == NULL || r->words == NULL || r->batch == NULL ||
        r->batch_host == NULL || (moments && (r->exp_avg == NULL || r->exp_avg_sq == NULL)))
        return error_set(
            err, ERR_RESOURCE_EXHAUSTED,
            "no memory for the weights, gradients and optimizer state (%zu bytes each)", flat);
    return 0;
}

static struct ckpt_state live_state(const struct rank *r)
{
    return (struct ckpt_state){
        .table = &r->table,
        .dtype = r->dtype,
        .weights = {.data = r->weights},
        .exp_avg = {.data = r->exp_avg},
        .exp_avg_sq = {.data = r->exp_avg_sq},
        .replica_idx = r->data_idx,
        .num_replicas = r->data_size,
    };
}

static int open_model(struct rank *r, struct error *err)
{
    const TrainingSpec *training = r->plan->spec->training;
    struct model_options options = {
        .config = r->plan->model->config,
        .table = &r->table,
        .dtype = r->dtype,
        .micro_batch_size = training->micro_batch_size,
        .seq_len = training->seq_len,
        .dev = r->dev,
        .kernels = r->kernels,
        .stream = r->compute,
        .trains = true,
    };
    if (model_new(&r->model, &options, err) != 0)
        return -1;
    model_bind_whole(r->model, r->weights, r->grads);
    return 0;
}

static int open_dp(struct rank *r, struct error *err)
{
    struct dp_options options = {
        .dev = r->dev,
        .compute = r->compute,
        .comm = r->grad_comm,
        .stage = r->stage,
        .dtype = r->dtype,
        .grads = r->grads,
    };
    return dp_new(&r->dp, &options, err);
}

static int open_optimizer(struct rank *r, struct error *err)
{
    struct optimizer_run *runs;
    int32_t num_runs;
    if (optimizer_table_runs(&r->table, &runs, &num_runs, err) != 0)
        return -1;
    struct optimizer_options options = {
        .spec = r->plan->spec->training->optimizer,
        .buffers = {r->weights, r->grads, r->exp_avg, r->exp_avg_sq},
        .runs = runs,
        .num_runs = num_runs,
        .dtype = r->dtype,
        .dev = r->dev,
        .kernels = r->kernels,
        .stream = r->compute,
    };
    int rc = optimizer_new(&r->optimizer, &options, err);
    free(runs);
    return rc;
}

static int open_saver(struct rank *r, struct error *err)
{
    const CheckpointSpec *checkpoint = r->plan->spec->checkpoint;
    struct saver_options options = {
        .dev = r->dev,
        .compute = r->compute,
        .comm = r->save_comm,
        .report = r->report,
        .job_dir = r->options->start->job_dir,
        .config = r->plan->model->config,
        .live = live_state(r),
        /* Where saves come only with the end there is nothing to overlap them with. */
        .async = checkpoint->async && spec_checkpoint_interval(r->plan->spec) > 0,
    };
    return saver_new(&r->saver, &options, err);
}

/* Checked again here, where the files are opened: a link may have been turned since the probe. */
static struct roots allowed(const struct rank *r)
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

static int open_loader(struct rank *r, struct error *err)
{
    struct loader_options options;
    if (loader_options_from_plan(&options, r->plan, r->idx) != 0)
        return error_set(err, ERR_INTERNAL, "the plan names no training data");
    struct roots roots = allowed(r);
    options.roots = &roots;
    return loader_open(&r->loader, &options, err);
}

static void set_aside(const char *dir, const char *why)
{
    struct error err = {0};
    if (ckpt_mark_damaged(dir, why, &err) != 0)
        log_error("%s can't be marked as damaged: %s", dir, err.text);
}

static int resume(struct rank *r, const char *dir, struct error *err)
{
    struct ckpt_state state = live_state(r);
    struct ckpt_meta meta;
    if (ckpt_load(dir, &state, &meta, err) != 0) {
        /* Also a file that isn't there. Else every restart would meet the same again. */
        if (err->code == ERR_DATA_LOSS || err->code == ERR_NOT_FOUND) {
            set_aside(dir, err->text);
            err->code = ERR_DATA_LOSS; /* worth a retry, from an older one */
        }
        return -1;
    }
    int64_t batch = r->plan->spec->training->global_batch_size;
    if (meta.consumed_samples != meta.step * batch)
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "%s: %lld samples in %lld steps, but the job takes %lld a step", dir,
                         (long long)meta.consumed_samples, (long long)meta.step, (long long)batch);
    r->step = meta.step;
    log_info("resumed from %s at step %lld", dir, (long long)meta.step);
    return 0;
}

/* From a checkpoint, a Hugging Face folder, or the seed. */
static int fill_weights(struct rank *r, struct error *err)
{
    const char *resume_dir = r->options->start->start->resume_dir;
    if (resume_dir != NULL && resume_dir[0] != '\0')
        return resume(r, resume_dir, err);
    struct ckpt_state state = live_state(r);
    const ModelFacts *model = r->plan->model;
    struct roots roots = allowed(r);
    if (model->path != NULL && model->path[0] != '\0')
        return ckpt_load_hf(&roots, model->path, &state, err);
    ckpt_init_random(&state, r->plan->spec->model->init_seed);
    return 0;
}

static int rank_open(struct rank *r, struct error *err)
{
    if (report_phase(r->report, 0, "load", err) != 0 || find_place(r, err) != 0 ||
        open_device(r, err) != 0 || open_comm(r, err) != 0 || alloc_buffers(r, err) != 0 ||
        open_loader(r, err) != 0 || open_model(r, err) != 0 || open_dp(r, err) != 0 ||
        open_optimizer(r, err) != 0 || open_saver(r, err) != 0)
        return -1;
    return fill_weights(r, err);
}

static void free_buffer(struct rank *r, void *mem)
{
    if (mem != NULL)
        r->dev->ops->free(r->dev, mem);
}

static void free_comm(struct comm *comm)
{
    if (comm != NULL)
        comm->ops->free(comm);
}

/* Also after a rank_open that failed half-way. */
static void rank_close(struct rank *r)
{
    saver_free(r->saver);
    dp_free(r->dp);
    optimizer_free(r->optimizer);
    model_free(r->model);
    loader_close(r->loader);
    free_comm(r->save_comm);
    free_comm(r->grad_comm);
    if (r->dev != NULL) {
        free_buffer(r, r->weights);
        free_buffer(r, r->exp_avg);
        free_buffer(r, r->exp_avg_sq);
        free_buffer(r, r->batch);
        free_buffer(r, r->batch_host);
        if (r->world == NULL) {
            free_buffer(r, r->grads);
            free_buffer(r, r->words);
        }
        if (r->compute != NULL)
            r->dev->ops->stream_free(r->dev, r->compute);
    }
    comm_host_close(r->world);
    if (r->dev != NULL)
        r->dev->ops->close(r->dev);
    params_free(&r->table);
    report_free(r->report);
}

/* ---- the run ----------------------------------------------------------------------------------
 */

static int export_weights(struct rank *r, struct error *err)
{
    char dir[1024];
    if (!fs_join(dir, sizeof(dir), r->options->start->job_dir, "export"))
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: path too long",
                         r->options->start->job_dir);
    /* The last step is always saved; an attempt that found nothing left to do began from it. */
    const char *from = saver_newest(r->saver);
    if (from[0] == '\0')
        from = r->options->start->start->resume_dir;
    if (from == NULL || from[0] == '\0')
        return error_set(err, ERR_INTERNAL, "there is no checkpoint to export");
    if (report_phase(r->report, r->step, "export", err) != 0 ||
        ckpt_export_hf(dir, from, &r->table, r->plan->model->config, err) != 0)
        return -1;
    log_info("final weights: %s", dir);
    return report_export(r->report, "export", err);
}

static int train(struct rank *r, struct error *err)
{
    bool paused;
    if (trainer_run(r, &paused, err) != 0)
        return -1;
    if (!paused && r->idx == 0 && r->plan->spec->checkpoint->export_at_end &&
        export_weights(r, err) != 0)
        return -1;
    return report_done(r->report, r->step, paused, err);
}

/* Would another attempt fare better? Not where the fault lies in what it would read again: the
 * plan, the model, the data, the arithmetic of this very step. */
static bool is_retryable(const struct error *err)
{
    switch (err->code) {
    case ERR_INVALID_ARGUMENT:
    case ERR_NOT_FOUND:
    case ERR_PERMISSION_DENIED:
    case ERR_FAILED_PRECONDITION:
    case ERR_OUT_OF_RANGE:
    case ERR_UNIMPLEMENTED:
        return false;
    default:
        return true;
    }
}

int rank_run(const struct rank_options *options, bool *retryable, struct error *err)
{
    struct error own = {0};
    err = err != NULL ? err : &own;
    struct rank r = {
        .options = options,
        .plan = options->start->start->plan,
        .idx = options->start->rank,
    };
    *retryable = true;
    if (report_new(&r.report, options->start, options->link, err) != 0)
        return -1;
    int rc = rank_open(&r, err);
    if (rc == 0)
        rc = train(&r, err);
    if (rc != 0) {
        *retryable = is_retryable(err);
        /* If the link is what failed, nobody listens any more. */
        report_fault(r.report, err->text, *retryable, NULL);
    }
    rank_close(&r);
    return rc;
}
