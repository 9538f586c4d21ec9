#include "runtime/rank/weights.h"

#include <malloc.h>
#include <pthread.h>

#include "base/fs.h"
#include "base/log.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/rank/wiring.h"

static struct ckpt_part part(const struct rank *r, enum store_part which)
{
    struct store_view view = store_view(r->store, which);
    return (struct ckpt_part){
        .data = view.data, .ranges = view.ranges, .num_ranges = view.num_ranges};
}

struct ckpt_state weights_state(const struct rank *r)
{
    struct ckpt_state state = {
        .table = &r->table,
        .dtype = dtype_wide(r->dtype),
        .bf16 = r->dtype == DTYPE_BF16,
        .tensor = r->plan->mesh->tensor,
        .tensor_idx = r->axes.coord.tensor,
        .weights = part(r, STORE_MASTERS),
        .exp_avg = part(r, STORE_EXP_AVG),
        .exp_avg_sq = part(r, STORE_EXP_AVG_SQ),
        .replica_idx = r->axes.replica_idx,
        .num_replicas = r->axes.num_replicas,
    };
    state.owned = store_owned(r->store, &state.num_owned);
    return state;
}

/* ---- filling ----------------------------------------------------------------------------------
 */

static void set_aside(const char *dir, const char *why)
{
    struct error err = {0};
    if (ckpt_mark_damaged(dir, why, &err) != 0)
        log_error("%s can't be marked as damaged: %s", dir, err.text);
}

static int resume(struct rank *r, const char *dir, struct error *err)
{
    struct ckpt_meta meta;
    if (ckpt_load_share(dir, saver_image(r->saver), &meta, r->idx, r->axes.num_ranks, err) != 0) {
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
    if (meta.precision == DTYPE_F64 && r->dtype != DTYPE_F64)
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "%s: is of an fp64 run, whose numbers this one (%s) would round", dir,
                         r->plan->spec->training->precision);
    r->step = meta.step;
    log_info("resumed from %s at step %lld", dir, (long long)meta.step);
    return 0;
}

/* What is trained: the weights, or their masters. */
static int fill(struct rank *r, const char *resume_dir, struct error *err)
{
    if (resume_dir != NULL)
        return resume(r, resume_dir, err);
    const struct ckpt_state *image = saver_image(r->saver);
    const ModelFacts *model = r->plan->model;
    struct roots roots = wiring_roots(r);
    if (model->path != NULL && model->path[0] != '\0')
        return ckpt_load_hf(&roots, model->path, image, err);
    ckpt_init_random(image, r->plan->spec->model->init_seed);
    return 0;
}

/* Megabytes that files were read and hashed through; the allocator would keep them.
 *
 * One rank at a time, where ranks are threads of one process: with another allocator in libc's
 * place, as sanitizers have one, this is what libc's own is set up by, and nothing guards that. */
static void give_back(void)
{
    static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&turn);
    malloc_trim(0);
    pthread_mutex_unlock(&turn);
}

int weights_fill(struct rank *r, struct error *err)
{
    const char *resume_dir = r->options->start->start->resume_dir;
    if (resume_dir != NULL && resume_dir[0] == '\0')
        resume_dir = NULL;
    int rc = fill(r, resume_dir, err);
    give_back();
    if (rc != 0 || saver_put_back(r->saver, resume_dir != NULL, err) != 0)
        return -1;
    return store_publish(r->store, err);
}

/* ---- the end ----------------------------------------------------------------------------------
 */

int weights_export(struct rank *r, struct error *err)
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
