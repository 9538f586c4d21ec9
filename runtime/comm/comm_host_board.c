/* The host segment as a board: each communicator of an accelerator has a slot like one of our own,
 * with a line for every member, of which comm_host_missing.c reads who is missing. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/comm_host_group.h"
#include "runtime/comm/comm_host_world.h"

static_assert((int)COMM_CALL_ALL_REDUCE == (int)CALL_ALL_REDUCE &&
                  (int)COMM_CALL_REDUCE_SCATTER == (int)CALL_REDUCE_SCATTER &&
                  (int)COMM_CALL_ALL_GATHER == (int)CALL_ALL_GATHER &&
                  (int)COMM_CALL_BROADCAST == (int)CALL_BROADCAST &&
                  (int)COMM_CALL_BARRIER == (int)CALL_BARRIER &&
                  (int)COMM_CALL_SEND == (int)CALL_SEND && (int)COMM_CALL_RECV == (int)CALL_RECV &&
                  (int)COMM_CALL_EXCHANGE == (int)CALL_EXCHANGE &&
                  (int)COMM_CALL_JOIN == (int)CALL_JOIN,
              "the same calls by the same numbers");
static_assert(COMM_BOARD_REASON_MAX <= SEGMENT_REASON_MAX, "a reason has room in the segment");

struct comm_board_line {
    struct comm_board_line *next;
    struct comm_host_world *w;
    struct segment_member *me;
    char name[COMM_HOST_NAME_MAX];
};

static struct comm_host_world *world_of(struct comm_board *b)
{
    return (struct comm_host_world *)(void *)((char *)b - offsetof(struct comm_host_world, board));
}

static struct segment_call call_of(const struct comm_board_call *c)
{
    struct segment_call call = {
        .kind = c->kind,
        .dtype = c->dtype,
        .op = c->op,
        .root = c->peer,
        .n = c->n,
        .offset = (int64_t)c->peers,
        .number = c->number,
        .turn = c->turn,
    };
    memcpy(call.what, c->what, sizeof call.what);
    return call;
}

static int line_new(struct comm_board *b, const int32_t *members, int32_t num, const char *name,
                    bool background, struct comm_board_line **out, struct error *err)
{
    struct comm_host_world *w = world_of(b);
    struct comm_board_line *l = calloc(1, sizeof *l);
    struct segment_slot *slot;
    uint32_t idx;
    if (!l) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "new communicator: out of memory");
    }
    if (host_world_join(w, members, num, &slot, &idx, err) != 0) {
        free(l);
        return -1;
    }
    for (int32_t i = 0; i < num; i++) {
        l->me = members[i] == w->base.rank ? &slot->members[i] : l->me;
    }
    ASSERT(l->me);
    atomic_store(&slot->is_board, 1);
    snprintf(l->name, sizeof l->name, "%s", name);
    segment_name(l->me, l->name, background);
    l->w = w;
    l->next = w->lines;
    w->lines = l;
    *out = l;
    return 0;
}

static void show(struct comm_board_line *l, const struct comm_board_call *c, bool is_inside)
{
    struct segment_call call = call_of(c);
    segment_show(l->me, &call);
    atomic_store(&l->me->came, c->number);
    atomic_store(&l->me->is_inside, is_inside);
}

static void call_text(struct comm_board_line *l, const struct comm_board_call *c, char *out,
                      size_t size)
{
    char text[COMM_HOST_CALL_TEXT_MAX];
    struct segment_call call = call_of(c);
    host_call_text(&call, l->name, text);
    snprintf(out, size, "%s", text);
}

static int32_t blame(struct comm_board_line *l, const struct comm_board_call *mine, double waited_s,
                     char *out, size_t size)
{
    struct segment_call call = call_of(mine);
    return host_blame(l->w->segment, l->w->hosts, &call, l->name, waited_s, out, size);
}

static void abort_all(struct comm_board *b, enum error_code code, int32_t culprit,
                      const char *reason)
{
    segment_abort(world_of(b)->segment, code, culprit, reason);
}

static bool aborted(struct comm_board *b, const char *doing, struct error *err)
{
    struct segment_header *h = world_of(b)->segment;
    if (!segment_is_aborted(h)) {
        return false;
    }
    segment_abort_error(h, doing, err);
    return true;
}

static const struct comm_board_ops board_ops = {
    .line_new = line_new,
    .show = show,
    .call_text = call_text,
    .blame = blame,
    .abort = abort_all,
    .aborted = aborted,
};

struct comm_board *comm_host_board(struct comm_host_world *w)
{
    if (!w) {
        return NULL;
    }
    w->board.ops = &board_ops;
    return &w->board;
}

void host_board_close(struct comm_host_world *w)
{
    while (w->lines) {
        struct comm_board_line *l = w->lines;
        w->lines = l->next;
        free(l);
    }
}
