#include "runtime/rank/commands.h"

static void note(struct commands *c, const RankDown *message)
{
    switch (message->body_case) {
    case RANK_DOWN__BODY_CHECKPOINT:
        c->save = true;
        break;
    case RANK_DOWN__BODY_STOP_AT_STEP:
        c->stop = true;
        c->stop_step = message->stop_at_step->step;
        break;
    default:
        /* A second start, or what a newer node says: nothing that a running rank could do. */
        break;
    }
}

int commands_poll(struct commands *c, struct link *link, struct error *err)
{
    for (;;) {
        RankDown *message = NULL;
        if (link_poll(link, 0, &message, err) != 0)
            return -1;
        if (message == NULL)
            return 0;
        note(c, message);
        rank_down__free_unpacked(message, NULL);
    }
}

enum boundary commands_take(struct commands *c, int64_t step)
{
    if (c->stop && step >= c->stop_step)
        return BOUNDARY_STOP;
    if (!c->save)
        return BOUNDARY_NONE;
    c->save = false;
    return BOUNDARY_SAVE;
}
