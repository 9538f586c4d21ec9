#include "base/error.h"
#include "plan/schedule.h"

bool schedule_next(struct schedule_walk *w, Action *out)
{
    while (w->next < w->stage->n_actions) {
        const Action *a = w->stage->actions[w->next];
        if (a->kind != ACTION_REPEAT) {
            *out = *a;
            out->has_micro_batch = 1;
            out->micro_batch += w->round;
            w->next++;
            return true;
        }
        if (w->round < a->times) {
            ASSERT(a->length > 0 && (size_t)a->length <= w->next);
            w->next -= (size_t)a->length;
            w->round++;
        } else {
            w->round = 0;
            w->next++;
        }
    }
    return false;
}

static void add_volume(struct schedule_volume *v, const Stage *stage, size_t begin, size_t end,
                       double times)
{
    for (size_t i = begin; i < end; i++) {
        const Action *a = stage->actions[i];
        bool reduce = a->kind == ACTION_REDUCE_BUCKET, gather = a->kind == ACTION_GATHER;
        double numel = reduce || gather ? times * (double)stage->buckets[a->bucket]->numel : 0;
        v->reduced += reduce ? numel : 0;
        v->final += reduce && a->final ? numel : 0;
        v->gathered += gather ? numel : 0;
    }
}

struct schedule_volume schedule_volume(const Stage *stage)
{
    struct schedule_volume v = {0};
    add_volume(&v, stage, 0, stage->n_actions, 1);
    for (size_t i = 0; i < stage->n_actions; i++) {
        const Action *a = stage->actions[i];
        if (a->kind == ACTION_REPEAT) {
            add_volume(&v, stage, i - (size_t)a->length, i, a->times);
        }
    }
    return v;
}
