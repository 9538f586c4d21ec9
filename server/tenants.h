/* What tenants may have of the devices, what they hold, and what they had: the use that the
 * scheduler sets against their next job. Use decays: device-time counts half after the half-life,
 * so a tenant that rested is first again.
 *
 * Memory of the owner thread, beside the tables that it can be made from again (tenants_open). What
 * a batch changes is put back if the batch, or one mail of it, fails. Indexes stay as they are. */
#ifndef TANDEM_SERVER_TENANTS_H
#define TANDEM_SERVER_TENANTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct sched_tenant;
struct store;
struct tenants;

struct tenant_quota {
    int64_t devices;     /* -1 = none */
    int64_t max_devices; /* -1 = no limit */
    double weight;       /* > 0 */
};
#define TENANT_QUOTA_NONE ((struct tenant_quota){.devices = -1, .max_devices = -1, .weight = 1})

/* half_life_h: 0 = use doesn't count. */
struct tenants *tenants_new(double half_life_h);
void tenants_free(struct tenants *t);
double tenants_half_life_h(const struct tenants *t);

/* -1: not there. */
int32_t tenants_find(const struct tenants *t, const char *name);
/* Its index; new ones have no quota. */
int32_t tenants_add(struct tenants *t, const char *name);
void tenants_set(struct tenants *t, int32_t i, const struct tenant_quota *q);
const struct tenant_quota *tenants_quota(const struct tenants *t, int32_t i);

/* So many devices more (negative: fewer) are held from now on. Times are milliseconds of a clock
 * that never goes back. */
void tenants_hold(struct tenants *t, int32_t i, int64_t devices, int64_t now_ms);
int64_t tenants_held(const struct tenants *t, int32_t i);
/* Use from before: devices were held for so long, until so long ago. */
void tenants_charge(struct tenants *t, int32_t i, int64_t devices, int64_t held_ms, int64_t ago_ms,
                    int64_t now_ms);

/* Changes since a mark are put back; kept for good. */
size_t tenants_mark(const struct tenants *t);
void tenants_put_back(struct tenants *t, size_t mark);
void tenants_keep(struct tenants *t);

/* As server/sched/sched.h wants them, by index; until the next call or change. */
const struct sched_tenant *tenants_sched(struct tenants *t, int64_t now_ms, int32_t *num);

/* Quotas and use from the database: what attempts that are over held is charged. Those that still
 * hold devices are for who brings them into memory. */
int tenants_open(struct tenants *t, struct store *s, int64_t now_ms, int64_t wall_us,
                 struct error *err);

#endif
