#include "runtime/rank/commands.h"

#include <string.h>

/* The first counts; one that no provider could have made is as good as none. */
static void note_id(struct commands *c, const CommId *message)
{
    if (c->comm_id_len > 0 || message->id.len > sizeof(c->comm_id))
        return;
    c->comm_id_len = message->id.len;
    if (c->comm_id_len > 0)
        memcpy(c->comm_id, message->id.data, c->comm_id_len);
}

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
    case RANK_DOWN__BODY_COMM_ID:
        note_id(c, message->comm_id);
        break;
    default:
        /* A second start, or what a newer node says: nothing that a running rank could do. */
        break;
    }
}

int commands_await(struct commands *c, struct link *link, int64_t timeout_ms, struct error *err)
{
    RankDown *message = NULL;
    if (link_poll(link, timeout_ms, &message, err) != 0)
        return -1;
    if (message != NULL)
        note(c, message);
    rank_down__free_unpacked(message, NULL);
    return 0;
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
