/* What new jobs don't get, and why: drains that somebody asked for (table drains), what the cluster
 * file calls drained, and devices that it has and the host has not reported. Owner thread.
 *
 * What a batch changes is put back if it can't be committed; a mail changes it last, when nothing
 * can fail any more. */
#ifndef TANDEM_SERVER_DRAINS_H
#define TANDEM_SERVER_DRAINS_H

#include "base/error.h"
#include "plan/fabric.h"
#include "server/store/rows.h"

struct drains;

/* f is borrowed for its life. */
int drains_new(struct drains **out, const struct fabric *f, struct error *err);
void drains_free(struct drains *d);

/* Rows as the store has them, by node and device; copied. Those of nodes that f doesn't have (any
 * more) are kept. */
void drains_load(struct drains *d, const struct drain_row *rows, size_t num);
void drains_put(struct drains *d, const struct drain_row *row);
void drains_remove(struct drains *d, const char *node, int32_t device);
void drains_settle(struct drains *d);
void drains_put_back(struct drains *d);

/* A node's devices that it didn't report: missing[num_devices of the fabric], looked at for the
 * node only. reason: "reports 7 of 8 devices". True: something is new. */
bool drains_set_missing(struct drains *d, int32_t node, const bool *missing, const char *reason);

bool drains_is_missing(const struct drains *d, int32_t device);

/* By device number: for the scheduler. */
const bool *drains_flags(const struct drains *d);
/* The row for that node and device exactly; NULL: there is none. */
const struct drain_row *drains_find(const struct drains *d, const char *node, int32_t device);
/* The next row of that node, behind *device; false: there is none. */
bool drains_next(const struct drains *d, const char *node, int32_t *device);
/* Why the device is drained; NULL: it isn't. Valid until the next change. */
const char *drains_reason(const struct drains *d, int32_t device);

#endif
