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
