/* Tenants as the database has them. */
#include "server/store/access_rows.h"
#include "server/tenants.h"

static bool take_tenant(void *arg, const struct tenant_row *row)
{
    struct tenants *t = arg;
    const struct tenant_quota q = {
        .devices = row->quota_devices, .max_devices = row->max_devices, .weight = row->weight};
    tenants_set(t, tenants_add(t, row->name), &q);
    return true;
}

int tenants_open(struct tenants *t, struct store *s, int64_t now_ms, int64_t wall_us,
                 struct error *err)
{
    (void)now_ms;
    (void)wall_us;
    int rc = store_tenant_list(s, NULL, false, take_tenant, t, err);
    tenants_keep(t);
    return rc;
}
