/* Tenants as the database has them. */
#include "server/store/access_rows.h"
#include "server/store/usage_rows.h"
#include "server/tenants.h"

/* What was held before that counts less than a hundred-thousandth. */
#define HALF_LIVES 17
#define HOUR_US 3.6e9

struct opening {
    struct tenants *t;
    struct store *s;
    int32_t i;
    int64_t now_ms, wall_us, since_us;
    struct error *err;
    int rc;
};

static bool take_attempt(void *arg, const struct usage_row *r)
{
    struct opening *o = arg;
    if (r->gone_us) {
        tenants_charge(o->t, o->i, r->devices, (r->gone_us - r->created_us) / 1000,
                       (o->wall_us - r->gone_us) / 1000, o->now_ms);
        tenants_keep(o->t);
    }
    return true;
}

static bool take_tenant(void *arg, const struct tenant_row *row)
{
    struct opening *o = arg;
    const struct tenant_quota q = {
        .devices = row->quota_devices, .max_devices = row->max_devices, .weight = row->weight};
    o->i = tenants_add(o->t, row->name);
    tenants_set(o->t, o->i, &q);
    o->rc = store_usage_between(o->s, row->name, o->since_us, INT64_MAX, take_attempt, o, o->err);
    return o->rc == 0;
}

int tenants_open(struct tenants *t, struct store *s, int64_t now_ms, int64_t wall_us,
                 struct error *err)
{
    double back_us = HALF_LIVES * HOUR_US * tenants_half_life_h(t);
    struct opening o = {.t = t, .s = s, .now_ms = now_ms, .wall_us = wall_us, .err = err};
    o.since_us = back_us < (double)wall_us ? wall_us - (int64_t)back_us : 0;
    int rc = store_tenant_list(s, NULL, false, take_tenant, &o, err);
    tenants_keep(t);
    return rc == 0 ? o.rc : rc;
}
