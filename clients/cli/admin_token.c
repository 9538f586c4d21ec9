/* tandem admin token ls|create|rotate|revoke */
#include <stdio.h>
#include "clients/cli/admin.h"
#include "clients/cli/args.h"
#include "clients/cli/collect.h"
#include "clients/cli/duration.h"
#include "clients/cli/new_token.h"

enum { PAGE = 200 };

static void cell_state(struct table *t, const Token *m, int64_t now_us)
{
    const char *red = "\033[31m";
    if (m->revoked_us) {
        table_cell(t, "revoked", NULL, red);
    } else if (m->expires_us && m->expires_us <= now_us) {
        table_cell(t, "expired", NULL, red);
    } else {
        table_cell(t, "good", NULL, "\033[32m");
    }
}

static void row(struct table *t, const ProtobufCMessage *message, int64_t now_us)
{
    const Token *m = (const Token *)message;
    char prefix[64];
    admin_cell_int(t, m->id);
    table_cell(t, m->label, NULL, NULL);
    table_cell(t, m->user, NULL, NULL);
    table_cell(t, m->tenant, NULL, NULL);
    snprintf(prefix, sizeof prefix, "%s...", m->prefix ? m->prefix : "");
    table_cell(t, prefix, m->prefix ? m->prefix : "", NULL);
    cell_state(t, m, now_us);
    admin_cell_time(t, m->created_us, now_us, "-");
    admin_cell_time(t, m->expires_us, now_us, "never");
    admin_cell_time(t, m->last_used_us, now_us, "never");
}

static const char *const columns[] = {">id",   "~label",  "~user",   "~tenant",   "token",
                                      "state", "created", "expires", "last_used", NULL};
static const struct admin_list list = {columns, row, "no tokens"};

/* All pages into c. */
static int fetch(struct cli *cli, ListTokensRequest *q, struct collect *c, struct error *err)
{
    q->has_limit = q->has_after_id = 1;
    q->limit = PAGE;
    for (;;) {
        ProtobufCMessage *reply;
        if (cli_call(cli, "Admin/ListTokens", &q->base, &list_tokens_reply__descriptor, &reply,
                     err)) {
            return -1;
        }
        ListTokensReply *r = (ListTokensReply *)reply;
        size_t num = r->n_tokens;
        collect_take(c, (ProtobufCMessage **)r->tokens, &r->n_tokens);
        protobuf_c_message_free_unpacked(reply, NULL);
        if (num < PAGE || c->num >= COLLECT_MAX) {
            return 0;
        }
        q->after_id = ((Token *)c->items[c->num - 1])->id;
    }
}

static int run_ls(struct cli *cli, int argc, char **argv)
{
    ListTokensRequest q = LIST_TOKENS_REQUEST__INIT;
    bool all = false;
    const struct arg_flag flags[] = {{"all", 'a', ARG_BOOL, &all, NULL},
                                     {"user", 'u', ARG_TEXT, &q.user, NULL},
                                     {"tenant", 't', ARG_TEXT, &q.tenant, NULL},
                                     {0}};
    if (args_parse(flags, argc, argv, NULL, 0) < 0) {
        return EXIT_USAGE;
    }
    q.has_all = 1;
    q.all = all;
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

static int call_new(struct cli *cli, const char *method, const ProtobufCMessage *q, const char *out)
{
    ProtobufCMessage *reply;
    struct error err;
    if (cli_call(cli, method, q, &new_token__descriptor, &reply, &err)) {
        return cli_fail(&err);
    }
    int code = new_token_hand_over(cli, (NewToken *)reply, out);
    new_token_free((NewToken *)reply);
    return code;
}

static int run_create(struct cli *cli, int argc, char **argv)
{
    CreateTokenRequest q = CREATE_TOKEN_REQUEST__INIT;
    const char *ttl = NULL, *out = NULL;
    const struct arg_flag flags[] = {
        {"user", 'u', ARG_TEXT, &q.user, NULL},   {"tenant", 't', ARG_TEXT, &q.tenant, NULL},
        {"label", 'l', ARG_TEXT, &q.label, NULL}, {"ttl", 0, ARG_TEXT, &ttl, NULL},
        {"out", 0, ARG_TEXT, &out, NULL},         {0}};
    if (args_parse(flags, argc, argv, NULL, 0) < 0) {
        return EXIT_USAGE;
    }
    if (ttl) {
        q.has_ttl_s = 1;
        if (!duration_read(ttl, &q.ttl_s)) {
            return cli_usage(argv[0], "--ttl %s: expected a time like 90d, 12h or 30m (0: never)",
                             ttl);
        }
    }
    int code = new_token_check_out(argv[0], out, false);
    return code ? code : call_new(cli, "Admin/CreateToken", &q.base, out);
}

/* The flags, and the one word, a number. 0, or an exit code. */
static int read_id(const struct arg_flag *flags, int argc, char **argv, int64_t *id)
{
    const char *word, *verb = argv[0];
    int num_words = args_parse(flags, argc, argv, &word, 1);
    if (num_words < 0) {
        return EXIT_USAGE;
    }
    if (num_words == 0) {
        return cli_usage(verb, "which token? Its number stands in `tandem admin token ls`");
    }
    if (!args_read_int(word, id)) {
        return cli_usage(verb, "%s: expected the number of a token, from `tandem admin token ls`",
                         word);
    }
    return 0;
}

static int run_rotate(struct cli *cli, int argc, char **argv)
{
    RotateTokenRequest q = ROTATE_TOKEN_REQUEST__INIT;
    const char *grace = NULL, *out = NULL;
    const struct arg_flag flags[] = {
        {"grace", 0, ARG_TEXT, &grace, NULL}, {"out", 0, ARG_TEXT, &out, NULL}, {0}};
    int code = read_id(flags, argc, argv, &q.id);
    if (code) {
        return code;
    }
    q.has_id = 1;
    if (grace) {
        q.has_grace_s = 1;
        if (!duration_read(grace, &q.grace_s)) {
            return cli_usage(argv[0], "--grace %s: expected a time like 1h or 30m", grace);
        }
    }
    code = new_token_check_out(argv[0], out, true);
    return code ? code : call_new(cli, "Admin/RotateToken", &q.base, out);
}

static int run_revoke(struct cli *cli, int argc, char **argv)
{
    RevokeTokenRequest q = REVOKE_TOKEN_REQUEST__INIT;
    const struct arg_flag flags[] = {{0}};
    int code = read_id(flags, argc, argv, &q.id);
    if (code) {
        return code;
    }
    q.has_id = 1;
    ProtobufCMessage *reply;
    struct error err;
    if (cli_call(cli, "Admin/RevokeToken", &q.base, &token__descriptor, &reply, &err)) {
        return cli_fail(&err);
    }
    const Token *t = (const Token *)reply;
    char text[256];
    snprintf(text, sizeof text, "token %lld of %s is revoked", (long long)t->id,
             t->user ? t->user : "?");
    admin_print_one(cli, &list, reply, text);
    protobuf_c_message_free_unpacked(reply, NULL);
    return EXIT_DONE;
}

static const struct verb ls = {
    .name = "ls",
    .args = "[-a] [--user U] [--tenant T]",
    .help = "list tokens, never the secrets",
    .text = "  -a, --all       also those that are revoked or expired\n"
            "  -u, --user U    only this user's\n"
            "  -t, --tenant T  only this tenant's\n\n"
            "The first digits tell which is which. Last used is known to the minute.\n\n"
            "  tandem admin token ls --user ann\n",
    .run = run_ls,
};
static const struct verb create = {
    .name = "create",
    .args = "[--user U] [--tenant T] [--label L] [--ttl 90d] [--out FILE]",
    .help = "make a token, shown this once",
    .text =
        "  -u, --user U    whose; yours if absent\n"
        "  -t, --tenant T  the user's tenant; yours if absent\n"
        "  -l, --label L   what it is for: laptop, ci\n"
        "      --ttl T     good for so long: 12h, 90d (unless given), 0 = until it is revoked\n"
        "      --out FILE  write it there, for its owner alone (0600); FILE must not exist\n\n"
        "Without --out a terminal shows it with a word of care; into a pipe goes the token alone.\n"
        "Its user puts it into ~/.config/tandem/token (0600), or names a file in "
        "TANDEM_TOKEN_FILE;\n"
        "it is never an argument of a command, where others could see it.\n\n"
        "  tandem admin token create --user ann --tenant red --label laptop --out ann.token\n"
        "  tandem admin token create --label ci --ttl 1d | ssh ci 'umask 077; cat > token'\n",
    .run = run_create,
};
static const struct verb rotate = {
    .name = "rotate",
    .args = "ID [--grace 1h] [--out FILE]",
    .help = "replace a token's secret",
    .text = "      --grace T   the old one is good for so long yet (none unless given)\n"
            "      --out FILE  write the new one there (0600), over the old one\n\n"
            "  tandem admin token rotate 3 --grace 1h --out ~/.config/tandem/token\n",
    .run = run_rotate,
};
static const struct verb revoke = {
    .name = "revoke",
    .args = "ID",
    .help = "end a token at once",
    .text = "What it has open (watch, logs -f) ends at once; new calls are refused. Jobs go on.\n\n"
            "  tandem admin token revoke 3\n",
    .run = run_revoke,
};
static const struct verb *const verbs[] = {&ls, &create, &rotate, &revoke, NULL};

const struct verb admin_token = {
    .name = "token",
    .args = "ls|create|rotate|revoke ...",
    .help = "tokens: what users get in with",
    .text = "The server keeps a hash of each; the token itself is shown once, when it is made.\n\n"
            "  tandem admin token create --user ann --label laptop --out ann.token\n",
    .subverbs = verbs,
};
