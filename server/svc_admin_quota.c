/* Service Admin: what a tenant may have of the devices. */
#include <stdio.h>
#include "server/svc_admin.h"

#define QUOTA_DEVICES_MAX 131072
#define QUOTA_WEIGHT_MIN 1e-6 /* a share of use stays finite */
#define QUOTA_WEIGHT_MAX 1e6

static int check_devices(const char *field, int64_t value, struct error *err)
{
    return value < -1 || value > QUOTA_DEVICES_MAX
               ? error_set(err, ERR_INVALID_ARGUMENT, "%s: a number from 0 to %d, or -1 for none",
                           field, QUOTA_DEVICES_MAX)
               : 0;
}

/* What is asked for, on top of what row has. */
static int take_quota(struct tenant_row *row, const SetQuotaRequest *r, struct error *err)
{
    if (!r->has_devices && !r->has_max_devices && !r->has_weight) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "devices, max_devices or weight: say what is to change");
    }
    if ((r->has_devices && check_devices("devices", r->devices, err) != 0) ||
        (r->has_max_devices && check_devices("max_devices", r->max_devices, err) != 0)) {
        return -1;
    }
    if (r->has_weight && !(r->weight >= QUOTA_WEIGHT_MIN && r->weight <= QUOTA_WEIGHT_MAX)) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "weight: a number above 0 (from %g), at most %.0f", QUOTA_WEIGHT_MIN,
                         QUOTA_WEIGHT_MAX);
    }
    row->quota_devices = r->has_devices ? r->devices : row->quota_devices;
    row->max_devices = r->has_max_devices ? r->max_devices : row->max_devices;
    row->weight = r->has_weight ? r->weight : row->weight;
    if (row->max_devices >= 0 && row->max_devices < row->quota_devices) {
        return error_set(
            err, ERR_INVALID_ARGUMENT,
            "max_devices: a maximum of %lld is less than the quota of %lld: raise both, "
            "or set no maximum",
            (long long)row->max_devices, (long long)row->quota_devices);
    }
    return 0;
}

static const char *words(char *out, size_t size, int64_t devices)
{
    snprintf(out, size, "%lld", (long long)devices);
    return devices < 0 ? "none" : out;
}

int admin_set_quota(void *controller, struct mail *m, struct error *err)
{
    struct controller *c = controller;
    const SetQuotaRequest *r = (const SetQuotaRequest *)m->message;
    struct tenant_row row;
    char quota[24], max[24];
    if (rights_check_name("tenant", r->tenant, err) != 0) {
        return -1;
    }
    int rc = store_tenant_get(controller_store(c), r->tenant, &row, err);
    if (rc != 1) {
        return rc < 0 ? -1 : error_set(err, ERR_NOT_FOUND, "there is no tenant %s", r->tenant);
    }
    if (take_quota(&row, r, err) != 0 ||
        store_tenant_set_quota(controller_store(c), &row, err) != 0 ||
        audit_change(c, call_caller(m->call), err, "tenant %s: quota %s, max %s, weight %g",
                     row.name, words(quota, sizeof quota, row.quota_devices),
                     words(max, sizeof max, row.max_devices), row.weight) != 0) {
        return -1;
    }
    struct tenants *t = controller_tenants(c);
    const struct tenant_quota q = {
        .devices = row.quota_devices, .max_devices = row.max_devices, .weight = row.weight};
    int32_t i = tenants_add(t, row.name);
    tenants_set(t, i, &q);
    row.devices_in_use = tenants_held(t, i);
    controller_schedule(c);
    controller_reply(c, m->call, admin_tenant_message(&row));
    return 0;
}
