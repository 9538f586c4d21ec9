/* Where a rank computes, and how it talks to the others: its device, and the communicators of each
 * of the plan's axes. On an accelerator the gang's segment on the host stays open beside: it says
 * which rank is missing in which call, ends a gang, and carries what is of the host (saves). */
#ifndef TANDEM_RUNTIME_RANK_PEERS_H
#define TANDEM_RUNTIME_RANK_PEERS_H

#include "runtime/rank/state.h"

/* Device and compute stream. */
int peers_open_device(struct rank *r, struct error *err);
/* Waits for the other ranks where the communicators' kind does. */
int peers_open_axes(struct rank *r, struct error *err);
/* This rank can't go on: nobody waits for it any more. */
void peers_let_go(struct rank *r, const char *reason);
/* All streams have come to their end. */
void peers_close(struct rank *r);

#endif
