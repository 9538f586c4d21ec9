/* tandem admin tenant ls|add|disable|enable */
#include <stdio.h>

#include "clients/cli/admin.h"
#include "clients/cli/args.h"

static void row(struct table *t, const ProtobufCMessage *message, int64_t now_us)
{
    const Tenant *m = (const Tenant *)message;
    table_cell(t, m->name, NULL, NULL);
    admin_cell_state(t, m->disabled);
    admin_cell_int(t, m->num_users);
    admin_cell_int(t, m->num_jobs);
    admin_cell_time(t, m->created_us, now_us, "-");
}

static const char *const columns[] = {"tenant", "state", ">users", ">jobs", "created", NULL};
static const struct admin_list list = {columns, row, "no tenants"};

static int run_ls(struct cli *cli, int argc, char **argv)
{
    const struct arg_flag flags[] = {{0}};
    if (args_parse(flags, argc, argv, NULL, 0) < 0) {
        return EXIT_USAGE;
    }
    ListTenantsRequest q = LIST_TENANTS_REQUEST__INIT;
    ProtobufCMessage *reply;
    struct error err;
    if (cli_call(cli, "Admin/ListTenants", &q.base, &list_tenants_reply__descriptor, &reply,
                 &err)) {
        return cli_fail(&err);
    }
    const ListTenantsReply *r = (const ListTenantsReply *)reply;
    admin_print_list(cli, &list, (const ProtobufCMessage *const *)r->tenants, r->n_tenants);
    protobuf_c_message_free_unpacked(reply, NULL);
    return EXIT_DONE;
}

/* The one word: 0, or an exit code. */
static int read_name(int argc, char **argv, const char **name)
{
    const struct arg_flag flags[] = {{0}};
    int n = args_parse(flags, argc, argv, name, 1);
    return n < 0 ? EXIT_USAGE : n == 0 ? cli_usage(argv[0], "which tenant?") : 0;
}

static int change(struct cli *cli, const char *method, const ProtobufCMessage *q, const char *what)
{
    ProtobufCMessage *reply;
    struct error err;
    if (cli_call(cli, method, q, &tenant__descriptor, &reply, &err)) {
        return cli_fail(&err);
    }
    char text[256];
    snprintf(text, sizeof text, "tenant %s %s", ((const Tenant *)reply)->name, what);
    admin_print_one(cli, &list, reply, text);
    protobuf_c_message_free_unpacked(reply, NULL);
    return EXIT_DONE;
}

static int run_add(struct cli *cli, int argc, char **argv)
{
    const char *name;
    int code = read_name(argc, argv, &name);
    if (code) {
        return code;
    }
    CreateTenantRequest q = CREATE_TENANT_REQUEST__INIT;
    q.name = (char *)(uintptr_t)name;
    return change(cli, "Admin/CreateTenant", &q.base, "is made");
}

static int set(struct cli *cli, int argc, char **argv, bool disabled)
{
    const char *name;
    int code = read_name(argc, argv, &name);
    if (code) {
        return code;
    }
    SetTenantRequest q = SET_TENANT_REQUEST__INIT;
    q.name = (char *)(uintptr_t)name;
    q.has_disabled = 1;
    q.disabled = disabled;
    return change(cli, "Admin/SetTenant", &q.base,
                  disabled ? "is disabled: nobody of it gets in, its jobs go on" : "is active");
}

static int run_disable(struct cli *cli, int argc, char **argv)
{
    return set(cli, argc, argv, true);
}

static int run_enable(struct cli *cli, int argc, char **argv)
{
    return set(cli, argc, argv, false);
}

static const struct verb ls = {
    .name = "ls",
    .help = "list tenants",
    .text = "  tandem admin tenant ls -o csv\n",
    .run = run_ls,
};
static const struct verb add = {
    .name = "add",
    .args = "NAME",
    .help = "make a tenant",
    .text = "What its jobs may read stands in the server's config file (roots).\n\n"
            "  tandem admin tenant add red\n",
    .run = run_add,
};
static const struct verb disable = {
    .name = "disable",
    .args = "NAME",
    .help = "let nobody of a tenant in",
    .text = "Its jobs go on; `tandem cancel` stops them.\n\n"
            "  tandem admin tenant disable red\n",
    .run = run_disable,
};
static const struct verb enable = {
    .name = "enable",
    .args = "NAME",
    .help = "let a disabled tenant's users in again",
    .text = "  tandem admin tenant enable red\n",
    .run = run_enable,
};
static const struct verb *const verbs[] = {&ls, &add, &disable, &enable, NULL};

const struct verb admin_tenant = {
    .name = "tenant",
    .args = "ls|add|disable|enable ...",
    .help = "tenants: who shares jobs, data and a queue",
    .text = "A tenant sees its own jobs and nothing of others'.\n\n"
            "  tandem admin tenant add red\n",
    .subverbs = verbs,
};
