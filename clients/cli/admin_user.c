/* tandem admin user ls|add|set|disable|enable */
#include <stdio.h>

#include "clients/cli/admin.h"
#include "clients/cli/args.h"
#include "clients/cli/collect.h"

enum { PAGE = 200 };

static void row(struct table *t, const ProtobufCMessage *message, int64_t now_us)
{
    const User *m = (const User *)message;
    table_cell(t, m->name, NULL, NULL);
    table_cell(t, m->tenant, NULL, NULL);
    table_cell(t, m->role, NULL, NULL);
    admin_cell_state(t, m->disabled);
    admin_cell_time(t, m->created_us, now_us, "-");
}

static const char *const columns[] = {"user", "tenant", "role", "state", "created", NULL};
static const struct admin_list list = {columns, row, "no users"};

/* All pages into c. */
static int fetch(struct cli *cli, ListUsersRequest *q, struct collect *c, struct error *err)
{
    q->has_limit = 1;
    q->limit = PAGE;
    for (;;) {
        ProtobufCMessage *reply;
        if (cli_call(cli, "Admin/ListUsers", &q->base, &list_users_reply__descriptor, &reply,
                     err)) {
            return -1;
        }
        ListUsersReply *r = (ListUsersReply *)reply;
        size_t num = r->n_users;
        collect_take(c, (ProtobufCMessage **)r->users, &r->n_users);
        protobuf_c_message_free_unpacked(reply, NULL);
        if (num < PAGE || c->num >= COLLECT_MAX) {
            return 0;
        }
        q->after = ((User *)c->items[c->num - 1])->name;
    }
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
    ListUsersRequest q = LIST_USERS_REQUEST__INIT;
    const struct arg_flag flags[] = {{"tenant", 't', ARG_TEXT, &q.tenant, NULL}, {0}};
    if (args_parse(flags, argc, argv, NULL, 0) < 0) {
        return EXIT_USAGE;
    }
    struct collect c = {0};
    struct error err;
    int code = EXIT_DONE;
    if (fetch(cli, &q, &c, &err)) {
        code = cli_fail(&err);
    } else {
        admin_print_list(cli, &list, (const ProtobufCMessage *const *)c.items, c.num);
    }
    collect_free(&c);
    return code;
}

static int change(struct cli *cli, const char *method, const ProtobufCMessage *q)
{
    ProtobufCMessage *reply;
    struct error err;
    if (cli_call(cli, method, q, &user__descriptor, &reply, &err)) {
        return cli_fail(&err);
    }
    const User *u = (const User *)reply;
    char text[512];
    snprintf(text, sizeof text, "user %s of %s is %s%s", u->name, u->tenant, u->role,
             u->disabled ? ", disabled" : "");
    admin_print_one(cli, &list, reply, text);
    protobuf_c_message_free_unpacked(reply, NULL);
    return EXIT_DONE;
}

static int run_add(struct cli *cli, int argc, char **argv)
{
    CreateUserRequest q = CREATE_USER_REQUEST__INIT;
    const char *role = NULL, *name;
    const struct arg_flag flags[] = {
        {"tenant", 't', ARG_TEXT, &q.tenant, NULL}, {"role", 'r', ARG_TEXT, &role, NULL}, {0}};
    int n = args_parse(flags, argc, argv, &name, 1);
    if (n < 1) {
        return n < 0 ? EXIT_USAGE : cli_usage(argv[0], "which user?");
    }
    q.name = (char *)(uintptr_t)name;
    q.role = role ? (char *)(uintptr_t)role : q.role;
    return change(cli, "Admin/CreateUser", &q.base);
}

/* role NULL and disabled -1: as they are. */
static int set(struct cli *cli, int argc, char **argv, bool with_role, int disabled)
{
    SetUserRequest q = SET_USER_REQUEST__INIT;
    const char *name;
    const struct arg_flag flags[] = {{"tenant", 't', ARG_TEXT, &q.tenant, NULL},
                                     {with_role ? "role" : NULL, 'r', ARG_TEXT, &q.role, NULL},
                                     {0}};
    int n = args_parse(flags, argc, argv, &name, 1);
    if (n < 1) {
        return n < 0 ? EXIT_USAGE : cli_usage(argv[0], "which user?");
    }
    if (with_role && !q.role) {
        return cli_usage(argv[0], "what is to change? --role R");
    }
    q.name = (char *)(uintptr_t)name;
    q.has_disabled = disabled >= 0;
    q.disabled = disabled > 0;
    return change(cli, "Admin/SetUser", &q.base);
}

static int run_set(struct cli *cli, int argc, char **argv)
{
    return set(cli, argc, argv, true, -1);
}

static int run_disable(struct cli *cli, int argc, char **argv)
{
    return set(cli, argc, argv, false, 1);
}

static int run_enable(struct cli *cli, int argc, char **argv)
{
    return set(cli, argc, argv, false, 0);
}

#define TENANT_FLAG "  -t, --tenant T  the tenant; yours if absent\n"

static const struct verb ls = {
    .name = "ls",
    .args = "[--tenant T]",
    .help = "list users",
    .text = TENANT_FLAG "\n  tandem admin user ls --tenant red\n",
    .run = run_ls,
};
static const struct verb add = {
    .name = "add",
    .args = "NAME [--tenant T] [--role R]",
    .help = "make a user",
    .text = TENANT_FLAG
    "  -r, --role R    viewer: reads its tenant\n"
    "                  member (unless given): submits; stops and changes its own jobs\n"
    "                  tenant-admin: users, tokens and all jobs of its tenant\n"
    "                  admin: everything, in every tenant\n\n"
    "A user gets in with a token: `tandem admin token create --user NAME`.\n\n"
    "  tandem admin user add ann --tenant red --role tenant-admin\n",
    .run = run_add,
};
static const struct verb set_verb = {
    .name = "set",
    .args = "NAME --role R [--tenant T]",
    .help = "give a user another role",
    .text = TENANT_FLAG "  -r, --role R    viewer, member, tenant-admin or admin\n\n"
                        "  tandem admin user set ann --role member\n",
    .run = run_set,
};
static const struct verb disable = {
    .name = "disable",
    .args = "NAME [--tenant T]",
    .help = "let a user in no more",
    .text = TENANT_FLAG "\nAll its tokens are refused from then on; its jobs go on.\n\n"
                        "  tandem admin user disable ann\n",
    .run = run_disable,
};
static const struct verb enable = {
    .name = "enable",
    .args = "NAME [--tenant T]",
    .help = "let a disabled user in again",
    .text = TENANT_FLAG "\n  tandem admin user enable ann\n",
    .run = run_enable,
};
static const struct verb *const verbs[] = {&ls, &add, &set_verb, &disable, &enable, NULL};

const struct verb admin_user = {
    .name = "user",
    .args = "ls|add|set|disable|enable ...",
    .help = "users and their roles",
    .text = "  tandem admin user add ann --tenant red\n",
    .subverbs = verbs,
};
