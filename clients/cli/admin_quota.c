/* tandem admin quota ls|set */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "clients/cli/admin.h"
#include "clients/cli/args.h"

/* What a server of before there were quotas leaves out is none. */
static const Quota *quota_of(const Tenant *t)
{
    static const Quota none = QUOTA__INIT;
    return t->quota ? t->quota : &none;
}

static void cell_devices(struct table *t, int64_t value, const char *none)
{
    char raw[32];
    snprintf(raw, sizeof raw, "%lld", (long long)value);
    table_cell(t, value < 0 ? none : raw, raw, NULL);
}

/* Held although it may not be: a quota or limit was lowered under it. Borrowed devices are over
 * only where nothing may be borrowed. */
static int64_t over_by(const Tenant *t)
{
    const Quota *q = quota_of(t);
    int64_t over = q->max_devices < 0 ? 0 : t->devices_in_use - q->max_devices;
    return over > 0 ? over : 0;
}

static void row(struct table *t, const ProtobufCMessage *message, int64_t now_us)
{
    (void)now_us;
    const Tenant *m = (const Tenant *)message;
    const Quota *q = quota_of(m);
    char text[64] = "", raw[32];
    table_cell(t, m->name, NULL, NULL);
    cell_devices(t, q->devices, "none");
    cell_devices(t, q->max_devices, "no limit");
    snprintf(raw, sizeof raw, "%g", q->weight);
    table_cell(t, raw, NULL, NULL);
    admin_cell_int(t, m->devices_in_use);
    admin_cell_int(t, m->devices_borrowed);
    int64_t over = over_by(m);
    if (over > 0) {
        snprintf(text, sizeof text, "over by %lld", (long long)over);
    }
    snprintf(raw, sizeof raw, "%lld", (long long)over);
    table_cell(t, text, raw, "\033[33m");
}

static const char *const columns[] = {"tenant",  ">quota",    ">max", ">weight",
                                      ">in_use", ">borrowed", "over", NULL};
static const struct admin_list list = {columns, row, "no tenants"};

static int fetch(struct cli *cli, ListTenantsReply **out, struct error *err)
{
    ListTenantsRequest q = LIST_TENANTS_REQUEST__INIT;
    ProtobufCMessage *reply;
    if (cli_call(cli, "Admin/ListTenants", &q.base, &list_tenants_reply__descriptor, &reply, err)) {
        return -1;
    }
    *out = (ListTenantsReply *)reply;
    return 0;
}

/* Devices of the cluster; 0 = not known. */
static int64_t cluster_devices(struct cli *cli)
{
    GetUsageRequest q = GET_USAGE_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct error err;
    q.has_from_us = q.has_to_us = 1;
    q.from_us = q.to_us = clock_wall_us();
    if (cli_call(cli, "Admin/GetUsage", &q.base, &get_usage_reply__descriptor, &reply, &err)) {
        return 0; /* the list stands without it */
    }
    int64_t num = ((const GetUsageReply *)reply)->num_devices;
    protobuf_c_message_free_unpacked(reply, NULL);
    return num;
}

static void warn_of_sum(struct cli *cli, const ListTenantsReply *r)
{
    int64_t sum = 0, num = 0;
    for (size_t i = 0; i < r->n_tenants; i++) {
        int64_t devices = quota_of(r->tenants[i])->devices;
        sum += devices > 0 ? devices : 0;
    }
    if (sum > 0 && (num = cluster_devices(cli)) > 0 && sum > num) {
        fprintf(stderr,
                "tandem: the quotas are %lld devices, the cluster has %lld: not all tenants can "
                "have theirs at once\n",
                (long long)sum, (long long)num);
    }
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
    const struct arg_flag flags[] = {{0}};
    if (args_parse(flags, argc, argv, NULL, 0) < 0) {
        return EXIT_USAGE;
    }
    ListTenantsReply *r;
    struct error err;
    if (fetch(cli, &r, &err)) {
        return cli_fail(&err);
    }
    admin_print_list(cli, &list, (const ProtobufCMessage *const *)r->tenants, r->n_tenants);
    warn_of_sum(cli, r);
    list_tenants_reply__free_unpacked(r, NULL);
    return EXIT_DONE;
}

/* ---- set ---- */

/* "none" or a number; absent changes nothing. 0, or an exit code. */
static int read_devices(const char *verb, const char *flag, const char *text,
                        protobuf_c_boolean *has, int64_t *out)
{
    if (!text) {
        return 0;
    }
    *has = 1;
    if (strcmp(text, "none") == 0) {
        *out = -1;
        return 0;
    }
    return args_read_int(text, out)
               ? 0
               : cli_usage(verb, "--%s %s: a number of devices, or none", flag, text);
}

static int read_weight(const char *verb, const char *text, SetQuotaRequest *q)
{
    if (!text) {
        return 0;
    }
    char *end;
    q->has_weight = 1;
    q->weight = strtod(text, &end);
    return *text && !*end && isfinite(q->weight) && q->weight > 0
               ? 0
               : cli_usage(verb, "--weight %s: a number above 0", text);
}

static void print_set(const struct cli *cli, const Tenant *t)
{
    char quota[32], max[32], text[512];
    const Quota *q = quota_of(t);
    snprintf(quota, sizeof quota, "%lld", (long long)q->devices);
    snprintf(max, sizeof max, "%lld", (long long)q->max_devices);
    int n =
        snprintf(text, sizeof text, "tenant %s: quota %s, max %s, weight %g", t->name,
                 q->devices < 0 ? "none" : quota, q->max_devices < 0 ? "no limit" : max, q->weight);
    if (over_by(t) > 0) {
        snprintf(text + n, sizeof text - (size_t)n,
                 "; holds %lld, over by %lld: these run on, new jobs of it wait",
                 (long long)t->devices_in_use, (long long)over_by(t));
    } else if (t->devices_borrowed > 0) {
        snprintf(text + n, sizeof text - (size_t)n, "; holds %lld, %lld of them borrowed",
                 (long long)t->devices_in_use, (long long)t->devices_borrowed);
    }
    admin_print_one(cli, &list, &t->base, text);
}

static int run_set(struct cli *cli, int argc, char **argv)
{
    const char *name, *devices = NULL, *max = NULL, *weight = NULL;
    SetQuotaRequest q = SET_QUOTA_REQUEST__INIT;
    const struct arg_flag flags[] = {
        {"devices", 'd', ARG_TEXT, &devices, NULL},
        {"max", 'm', ARG_TEXT, &max, NULL},
        {"weight", 'w', ARG_TEXT, &weight, NULL},
        {0},
    };
    int n = args_parse(flags, argc, argv, &name, 1);
    if (n < 0) {
        return EXIT_USAGE;
    }
    if (n == 0) {
        return cli_usage(argv[0], "which tenant?");
    }
    if (!devices && !max && !weight) {
        return cli_usage(argv[0], "--devices, --max or --weight: say what is to change");
    }
    int code = read_devices(argv[0], "devices", devices, &q.has_devices, &q.devices);
    code = code ? code : read_devices(argv[0], "max", max, &q.has_max_devices, &q.max_devices);
    code = code ? code : read_weight(argv[0], weight, &q);
    if (code) {
        return code;
    }
    q.tenant = (char *)(uintptr_t)name;
    ProtobufCMessage *reply;
    ListTenantsReply *all;
    struct error err;
    if (cli_call(cli, "Admin/SetQuota", &q.base, &tenant__descriptor, &reply, &err)) {
        return cli_fail(&err);
    }
    print_set(cli, (const Tenant *)reply);
    protobuf_c_message_free_unpacked(reply, NULL);
    if (fetch(cli, &all, &err) == 0) {
        warn_of_sum(cli, all);
        list_tenants_reply__free_unpacked(all, NULL);
    }
    return EXIT_DONE;
}

static const struct verb ls = {
    .name = "ls",
    .help = "quotas of all tenants, and what each holds",
    .text =
        "QUOTA is a tenant's own; IN_USE what it holds now, BORROWED what of that is beyond its\n"
        "quota, OVER what is beyond its max since that was lowered.\n\n"
        "  tandem admin quota ls\n",
    .run = run_ls,
};
static const struct verb set = {
    .name = "set",
    .args = "TENANT [--devices N|none] [--max N|none] [--weight W]",
    .help = "change what a tenant may have of the devices",
    .text =
        "  -d, --devices N  its quota: its own devices, which it gets whenever it wants them\n"
        "  -m, --max N      it never holds more than this, borrowed ones included\n"
        "  -w, --weight W   share of use that is fair, against the others' (1)\n\n"
        "What is left out stays. Beyond its quota a tenant borrows what is free, up to its max. "
        "When\n"
        "another tenant wants devices of its own quota, borrowed ones are taken back: a "
        "borrower's\n"
        "job saves a checkpoint, gives them up and waits. With --max equal to --devices a tenant\n"
        "borrows nothing. Without a quota (none) it shares what is free with all others that have\n"
        "none; priority decides between them.\n\n"
        "A quota that is lowered under what runs stops nothing: jobs run on, new ones wait.\n\n"
        "On 16 devices, red may have 12 while blue is idle, and 8 at the least; so may blue:\n\n"
        "  tandem admin quota set red --devices 8 --max 12\n"
        "  tandem admin quota set blue --devices 8 --max 12\n",
    .run = run_set,
};
static const struct verb *const verbs[] = {&ls, &set, NULL};

const struct verb admin_quota = {
    .name = "quota",
    .args = "ls|set ...",
    .help = "devices of each tenant: its own, borrowed, fair share",
    .text = "  tandem admin quota set red --devices 8 --max 12\n",
    .subverbs = verbs,
};
