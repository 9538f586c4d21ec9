/* The operator of the simulation: changes quotas, drains and undrains, one wish at a time, repeated
 * until it is answered. What may be true of each row then: one value that was acknowledged, or
 * any of those that were asked for since. */
#ifndef TANDEM_TESTS_SIM_ADMIN_H
#define TANDEM_TESTS_SIM_ADMIN_H

#include "tests/sim/sim_cluster.h"

#define SIM_TENANTS_MAX 4

struct sim_quota {
    int64_t devices, max_devices;
    double weight;
};

/* Bits: what a row of the drains may say. */
enum { SIM_DRAIN_NONE = 1, SIM_DRAIN_HARD = 2, SIM_DRAIN_SOFT = 4 };

enum sim_wish_kind { WISH_NOTHING, WISH_QUOTA, WISH_DRAIN, WISH_UNDRAIN };

struct sim_wish {
    enum sim_wish_kind kind;
    int32_t tenant;
    struct sim_quota quota;
    int32_t node, device; /* device: ours; -1 = all of the node */
    bool let_finish;
};

struct sim_admin {
    struct sim_wish wish; /* NOTHING = none is on its way */
    bool answered;
    int32_t open; /* calls that the controller may still carry out */
    struct sim_quota quotas[SIM_TENANTS_MAX];
    int nodes[SIM_NODES_MAX], devices[SIM_DEVICES_MAX]; /* bits of SIM_DRAIN_* */
};

extern const char *const sim_tenants[SIM_TENANTS_MAX];

void sim_admin_new(struct sim *s);
void sim_admin_free(struct sim *s);
/* It does something. */
void sim_admin_act(struct sim *s);
/* The faults are over: drains and quotas are taken back, one by one. */
void sim_admin_settle(struct sim *s);
/* Devices that are drained for sure, and those that may be. hard: without let_finish. */
uint64_t sim_admin_drained(const struct sim *s, bool hard);
uint64_t sim_admin_maybe_drained(const struct sim *s);
/* Those that jobs may have to leave. */
uint64_t sim_admin_maybe_hard(const struct sim *s);
/* May the quota of that tenant be this now? */
bool sim_admin_may_be(const struct sim *s, int32_t tenant, const struct sim_quota *q);

#endif
