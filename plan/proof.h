/* The proof of a plan before anybody obeys it: an independent walk over the list of actions that
 * knows what each does to weights, gradients and slots, and not how the list was made. It shows:
 *
 * - the parameter table is the family's, and its tags say how each gradient lies over the tensor
 *   ranks; buckets cover it, come out even over the ranks that share one, and from ZeRO-2 on are
 *   the units;
 * - every micro-batch runs forward, then backward, over all units once; a unit's weights are there
 *   whole when it runs; no slot holds two things or one that is too large for it; at the end of the
 *   step every slot is empty, or every rank has got all new weights once;
 * - a gradient is opened before it is added to, summed over its tensor ranks and then over the data
 *   ranks once (in a step, or from ZeRO-2 on in each micro-batch), after its last use (a tied
 *   embedding: the embedding's own), and with final in the last micro-batch alone;
 * - the waits come before the norm, that before the optimizer, that before the gathers of what it
 *   made; targets are counted first where data can have ignored ones;
 * - what a repeat repeats begins and ends with a micro-batch, none of them the last, and leaves
 *   everything as it found it: so what holds for one round holds for all.
 *
 * A list can be less good than plan/schedule.h's and still pass: no order among different
 * collectives is asked for that nothing depends on. */
#ifndef TANDEM_PLAN_PROOF_H
#define TANDEM_PLAN_PROOF_H

#include "base/error.h"
#include "proto/names.h"

/* Of a plan that the runtime can run (one stage; data and tensor axes alone), from wherever it
 * came. ERR_INVALID_ARGUMENT names the action that is wrong, and why. */
int plan_prove(const Plan *plan, struct error *err);

#endif
