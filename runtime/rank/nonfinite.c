#include "runtime/rank/nonfinite.h"

#include <math.h>

#include "plan/schedule.h"
#include "runtime/optim/clip.h"
#include "runtime/rank/trainer.h"

enum { FINITE, LOSS_NOT_FINITE, GRADIENT_NOT_FINITE };

/* This rank's forward and backward passes of the step again, nothing summed over ranks. */
static int repeat_share(struct rank *r, int64_t step, double dloss, struct error *err)
{
    size_t grad_bytes = (size_t)r->table.flat_numel * dtype_size(r->dtype);
    if (r->dev->ops->zero(r->dev, r->compute, r->grads, grad_bytes, err) != 0 ||
        r->dev->ops->zero(r->dev, r->compute, r->words, (size_t)r->num_words * sizeof(*r->words),
                          err) != 0)
        return -1;
    struct schedule_walk walk = {.stage = r->stage};
    for (Action a; schedule_next(&walk, &a);) {
        if (a.kind == ACTION_FORWARD && trainer_forward(r, step, &a, dloss, err) != 0)
            return -1;
        if (a.kind == ACTION_BACKWARD &&
            model_backward(r->model, a.unit_begin, a.unit_end, err) != 0)
            return -1;
    }
    return 0;
}

static int judge_share(struct rank *r, double *verdict, struct error *err)
{
    double loss, norm;
    if (r->dev->ops->copy(r->dev, r->compute, &loss, &r->words[WORD_LOSS], sizeof(loss),
                          COPY_TO_HOST, err) != 0 ||
        clip_norm(r->dev, r->kernels, r->compute, r->dtype, r->grads, r->table.flat_numel,
                  &r->words[WORD_SCRATCH], &norm, err) != 0)
        return -1;
    *verdict = !isfinite(loss) ? LOSS_NOT_FINITE : !isfinite(norm) ? GRADIENT_NOT_FINITE : FINITE;
    return 0;
}

/* Each rank's verdict to all ranks. */
static int exchange(struct rank *r, double verdict, double *verdicts, struct error *err)
{
    size_t bytes = (size_t)r->data_size * sizeof(*verdicts);
    double *place = &r->words[WORD_RANKS];
    for (int32_t i = 0; i < r->data_size; i++)
        verdicts[i] = i == r->data_idx ? verdict : 0.0;
    if (r->dev->ops->copy(r->dev, r->compute, place, verdicts, bytes, COPY_TO_DEVICE, err) != 0 ||
        dp_reduce_words(r->dp, place, r->data_size, err) != 0 || dp_wait(r->dp, err) != 0 ||
        r->dev->ops->copy(r->dev, r->compute, verdicts, place, bytes, COPY_TO_HOST, err) != 0)
        return -1;
    return r->dev->ops->stream_sync(r->dev, r->compute, err);
}

int nonfinite_explain(struct rank *r, int64_t step, double dloss, const struct step_result *result,
                      struct error *err)
{
    double verdict = FINITE, verdicts[COMM_HOST_MAX_RANKS];
    ASSERT(r->data_size <= COMM_HOST_MAX_RANKS);
    if (repeat_share(r, step, dloss, err) != 0 || judge_share(r, &verdict, err) != 0 ||
        exchange(r, verdict, verdicts, err) != 0)
        return -1;
    for (int32_t i = 0; i < r->data_size; i++)
        if (verdicts[i] != FINITE)
            return error_set(err, ERR_OUT_OF_RANGE,
                             "the %s is not finite on rank %d (loss %g, gradient norm %g); %s",
                             verdicts[i] == LOSS_NOT_FINITE ? "loss" : "gradient", i, result->loss,
                             result->grad_norm,
                             step > 1 ? "a lower learning rate or a smaller clip_grad_norm may help"
                                      : "nothing is trained yet, so look at the weights of the "
                                        "model that it starts from");
    return error_set(err, ERR_OUT_OF_RANGE,
                     "the gradient summed over all ranks is not finite (loss %g, gradient norm "
                     "%g), each rank's own is",
                     result->loss, result->grad_norm);
}
