/* A list of actions while it is made. Private to plan/schedule*. */
#ifndef TANDEM_PLAN_SCHEDULE_LIST_H
#define TANDEM_PLAN_SCHEDULE_LIST_H

#include "plan/schedule.h"

struct schedule_list {
    Stage *stage; /* its actions grow */
    const struct schedule_rule *rule;
    size_t room;
    bool *partial;    /* of each unit: has it gradients that the tensor ranks have to sum? */
    int32_t *buckets; /* of each unit: the one that its last parameter lies in */
    bool tied;        /* the head uses the embedding, too */
};

/* A field that has its default is left out of the message. */
void schedule_add(struct schedule_list *l, ActionKind kind);
void schedule_add_units(struct schedule_list *l, ActionKind kind, int32_t micro_batch,
                        int32_t unit_begin, int32_t unit_end);
void schedule_add_bucket(struct schedule_list *l, ActionKind kind, int32_t bucket, int32_t slot);
void schedule_add_reduce(struct schedule_list *l, int32_t bucket, bool final);
/* Where the unit has partial gradients. */
void schedule_add_partial(struct schedule_list *l, int32_t unit);

/* One micro-batch, with what its being the first or the last brings. */
typedef void (*schedule_micro_fn)(struct schedule_list *l, int32_t micro_batch, bool first,
                                  bool last);
/* Stages 0 and 1 (schedule_data.c). */
void schedule_data_micro(struct schedule_list *l, int32_t micro_batch, bool first, bool last);
/* Stages 2 and 3 (schedule_sharded.c). */
void schedule_sharded_micro(struct schedule_list *l, int32_t micro_batch, bool first, bool last);
void schedule_sharded_slots(struct schedule_list *l);

#endif
