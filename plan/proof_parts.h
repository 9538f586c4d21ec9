/* Parts of plan_prove. Private to plan/proof*. */
#ifndef TANDEM_PLAN_PROOF_PARTS_H
#define TANDEM_PLAN_PROOF_PARTS_H

#include <stdbool.h>

#include "plan/params.h"
#include "plan/proof.h"

/* What the walk knows of a unit and of a bucket. */
struct proof_unit {
    int32_t first_bucket, last_bucket; /* where its parameters lie */
    bool partial;                      /* it has gradients that tensor ranks have to sum */
    bool summed;                       /* and they have, in this micro-batch or step */
};
struct proof_bucket {
    int32_t first_unit, last_unit; /* the units in it, first <= last */
    int32_t weight_slot;           /* ZeRO-3; -1 = its weights are not here */
    int32_t grad_slot;             /* from ZeRO-2 on; -1 = its gradients are not open */
    bool reduced;                  /* in this micro-batch or step */
    bool gathered;                 /* ZeRO-1 and 2: new weights are under way */
};

struct proof {
    const Plan *plan;
    const Stage *stage;
    struct param_table table;
    struct proof_unit *units;
    struct proof_bucket *buckets;
    int32_t *weight_slots, *grad_slots; /* the bucket that lies in each; -1 = none */
    int32_t num_units, num_buckets;
    int64_t zero_stage; /* 0 where nothing is shared */
    bool sums_data, sums_words, tied;
    /* Where the walk is. Units >= pos of a backward pass, < pos of a forward pass are done. */
    int32_t micro_batch, pos;
    bool backward;
    bool counted, loss, waited, norm, optimizer;
    size_t action;
    struct error *err;
};

/* The table, its tags, the buckets and the slots; fills the proof. */
int proof_open(struct proof *p, const Plan *plan, struct error *err);
void proof_close(struct proof *p);
/* The parameter table is the family's, with the tags of the layout. */
int proof_tags(const Plan *plan, struct error *err);
/* Takes stage->actions[p->action], not a repeat. */
int proof_take(struct proof *p);
/* A micro-batch is over: nothing of it is left undone. */
int proof_end_micro(struct proof *p);
/* The action at hand is wrong. */
int proof_refuse(struct proof *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
