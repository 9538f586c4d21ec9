#include "runtime/rank/nonfinite.h"

#include <math.h>

#include "plan/schedule.h"
#include "runtime/rank/words.h"

enum verdict { FINITE, LOSS_NOT_FINITE, GRADIENT_NOT_FINITE };

static void find(enum verdict *verdict, double value, enum verdict wrong)
{
    if (*verdict == FINITE && !isfinite(value))
        *verdict = wrong;
}

static int judge_loss(struct rank *r, enum verdict *verdict, struct error *err)
{
    double loss;
    if (words_get(r, WORD_LOSS, &loss, 1, err) != 0)
        return -1;
    find(verdict, loss, LOSS_NOT_FINITE);
    return 0;
}

/* The whole gradients of a bucket as they lie here now. */
static int judge_bucket(struct rank *r, int32_t bucket, enum verdict *verdict, struct error *err)
{
    double sum;
    const void *grads = r->grads_at[bucket];
    if (grads == NULL)
        return 0;
    if (store_sum_squares(r->store, &r->words[WORD_SCRATCH], grads,
                          r->stage->buckets[bucket]->numel, err) != 0 ||
        words_get(r, WORD_SCRATCH, &sum, 1, err) != 0)
        return -1;
    find(verdict, sum, GRADIENT_NOT_FINITE);
    return 0;
}

/* One rank sums nothing: its gradients lie there to the end. */
static int judge_unreduced(struct rank *r, enum verdict *verdict, struct error *err)
{
    if (judge_loss(r, verdict, err) != 0)
        return -1;
    for (int32_t b = 0; b < (int32_t)r->stage->n_buckets; b++)
        if (judge_bucket(r, b, verdict, err) != 0)
            return -1;
    return 0;
}

/* The list up to the norm, with all that passes and buckets need of each other; what would carry
 * one rank's share to another before it was looked at is left out on all ranks. */
static int repeat_share(struct rank *r, struct step *s, enum verdict *verdict, struct error *err)
{
    if (store_begin_step(r->store, err) != 0 || words_clear(r, WORD_LOSS, 1, err) != 0)
        return -1;
    struct schedule_walk walk = {.stage = r->stage};
    for (Action a; schedule_next(&walk, &a) && a.kind != ACTION_NORM;) {
        bool sums = a.kind == ACTION_REDUCE_BUCKET;
        /* The loss first: a gradient of one that isn't finite isn't either. */
        if ((sums || a.kind == ACTION_REDUCE_LOSS) && judge_loss(r, verdict, err) != 0)
            return -1;
        if (sums && judge_bucket(r, a.bucket, verdict, err) != 0)
            return -1;
        bool left_out = a.kind == ACTION_COUNT_TARGETS || a.kind == ACTION_REDUCE_LOSS ||
                        a.kind == ACTION_REDUCE_PARTIAL;
        if (!left_out && trainer_action(r, s, &a, err) != 0)
            return -1;
    }
    return r->axes.world == NULL ? judge_unreduced(r, verdict, err) : 0;
}

/* Each rank's verdict to all ranks. */
static int exchange(struct rank *r, enum verdict verdict, double *verdicts, struct error *err)
{
    int32_t num = r->axes.num_ranks;
    for (int32_t i = 0; i < num; i++)
        verdicts[i] = i == r->idx ? (double)verdict : 0.0;
    if (words_put(r, 0, WORD_RANKS, verdicts, num, err) != 0 ||
        words_sum(r, WORD_RANKS, num, "what is not finite", err) != 0 ||
        store_wait(r->store, err) != 0 || words_get(r, WORD_RANKS, verdicts, num, err) != 0)
        return -1;
    words_meet(r);
    return 0;
}

/* For a reader: a NaN has no sign. */
static double readable(double value)
{
    return isnan(value) ? (double)NAN : value;
}

int nonfinite_explain(struct rank *r, const struct step *s, struct error *err)
{
    const struct step_result *result = &s->result;
    enum verdict verdict = FINITE;
    double verdicts[COMM_HOST_MAX_RANKS];
    struct step again = {.number = s->number, .dloss = s->dloss};
    if (repeat_share(r, &again, &verdict, err) != 0 || exchange(r, verdict, verdicts, err) != 0)
        return -1;
    for (int32_t i = 0; i < r->axes.num_ranks; i++)
        if (verdicts[i] != FINITE)
            return error_set(err, ERR_OUT_OF_RANGE,
                             "the %s is not finite on rank %d (loss %g, gradient norm %g); %s",
                             verdicts[i] == LOSS_NOT_FINITE ? "loss" : "gradient", i,
                             readable(result->loss), readable(result->grad_norm),
                             s->number > 1
                                 ? "a lower learning rate or a smaller clip_grad_norm (0 = off) "
                                   "may help"
                                 : "nothing is trained yet, so look at the weights of the "
                                   "model that it starts from");
    return error_set(err, ERR_OUT_OF_RANGE,
                     "the gradient summed over all ranks is not finite (loss %g, gradient norm "
                     "%g), each rank's own is",
                     readable(result->loss), readable(result->grad_norm));
}
