#include "runtime/rank/passes.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/rank/replay.h"
#include "runtime/rank/words.h"

enum pass_kind { PASS_FORWARD, PASS_BACKWARD, PASS_FIRST_BACKWARD };

struct pass {
    struct model *model;
    int32_t unit_begin, unit_end;
    bool is_first;
};

int passes_open(struct rank *r, struct error *err)
{
    const char *wanted = getenv("TANDEM_CUDA_GRAPHS");
    bool off = wanted != NULL && strcmp(wanted, "0") == 0;
    if (r->dev->ops->capture_begin == NULL)
        return 0;
    if (wanted != NULL && !off && strcmp(wanted, "1") != 0)
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "TANDEM_CUDA_GRAPHS: \"%.16s\": set it to 0 (off) or 1", wanted);
    if (off || r->plan->mesh->tensor != 1)
        return 0;
    return replay_new(&r->replay, r->dev, r->compute, err);
}

static struct replay_key key_of(enum pass_kind kind, const struct pass *p)
{
    return (struct replay_key){
        .kind = (int32_t)kind,
        .unit_begin = p->unit_begin,
        .unit_end = p->unit_end,
        .places = model_places(p->model, p->unit_begin, p->unit_end),
    };
}

/* Without the head's unit, which knows dloss and the loss. */
static int forward(void *arg, struct error *err)
{
    const struct pass *p = arg;
    return model_forward(p->model, p->unit_begin, p->unit_end, 0.0, NULL, err);
}

static int backward(void *arg, struct error *err)
{
    const struct pass *p = arg;
    return model_backward(p->model, p->unit_begin, p->unit_end, p->is_first, err);
}

/* What the head's loss is divided by may be another one in each step: that unit is done as it
 * comes.
 */
int pass_forward(struct rank *r, int32_t unit_begin, int32_t unit_end, double dloss,
                 struct error *err)
{
    int32_t head = r->num_units - 1;
    struct pass p = {r->model, unit_begin, unit_end > head ? head : unit_end, false};
    struct replay_key key = key_of(PASS_FORWARD, &p);
    if (p.unit_begin < p.unit_end && replay_run(r->replay, &key, forward, &p, err) != 0)
        return -1;
    if (unit_end <= head)
        return 0;
    return model_forward(r->model, unit_begin > head ? unit_begin : head, unit_end, dloss,
                         &r->words[WORD_LOSS], err);
}

int pass_backward(struct rank *r, int32_t unit_begin, int32_t unit_end, bool is_first,
                  struct error *err)
{
    struct pass p = {r->model, unit_begin, unit_end, is_first};
    struct replay_key key = key_of(is_first ? PASS_FIRST_BACKWARD : PASS_BACKWARD, &p);
    return replay_run(r->replay, &key, backward, &p, err);
}
