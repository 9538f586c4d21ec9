/* tandem admin audit */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "clients/cli/admin.h"
#include "clients/cli/args.h"
#include "clients/cli/collect.h"
#include "clients/cli/duration.h"

enum { PAGE = 500 };

static void row(struct table *t, const ProtobufCMessage *message, int64_t now_us)
{
    const AuditRow *m = (const AuditRow *)message;
    const char *result = m->result ? m->result : "";
    admin_cell_time(t, m->time_us, now_us, "-");
    table_cell(t, m->tenant, NULL, NULL);
    table_cell(t, m->user, NULL, NULL);
    table_cell(t, m->method, NULL, NULL);
    table_cell(t, m->object, NULL, NULL);
    table_cell(t, result, NULL, strcmp(result, "ok") == 0 ? NULL : "\033[31m");
    table_cell(t, m->peer, NULL, NULL);
    char id[32] = "";
    if (m->token_id) {
        snprintf(id, sizeof id, "%lld", (long long)m->token_id);
    }
    table_cell(t, id, NULL, NULL);
}

static const char *const columns[] = {"time",    "tenant", "user",   "method", "~object",
                                      "~result", "peer",   ">token", NULL};
static const struct admin_list list = {columns, row, "nothing of the kind was done"};

/* Newest first, at most limit. */
static int fetch(struct cli *cli, ListAuditRequest *q, int64_t limit, struct collect *c,
                 struct error *err)
{
    q->has_limit = q->has_before_id = 1;
    for (;;) {
        ProtobufCMessage *reply;
        int64_t left = limit - (int64_t)c->num;
        q->limit = (int32_t)(left < PAGE ? left : PAGE);
        if (cli_call(cli, "Admin/ListAudit", &q->base, &list_audit_reply__descriptor, &reply,
                     err)) {
            return -1;
        }
        ListAuditReply *r = (ListAuditReply *)reply;
        /* A page without a row may not be the last. */
        bool told = r->has_next_before_id;
        int64_t next = r->next_before_id;
        size_t num = r->n_rows;
        collect_take(c, (ProtobufCMessage **)r->rows, &r->n_rows);
        protobuf_c_message_free_unpacked(reply, NULL);
        if ((told ? next == 0 : num == 0) || (int64_t)c->num >= limit) {
            return 0;
        }
        q->before_id = told ? next : ((AuditRow *)c->items[c->num - 1])->id;
    }
}

/* text NULL: not given. 0, or an exit code. */
static int read_moment(const char *verb, const char *flag, const char *text, int64_t *out_us)
{
    if (!text || duration_read_since(text, clock_wall_us(), out_us)) {
        return 0;
    }
    return cli_usage(verb, "--%s %s: expected a time like 2d or 30m, or a day like 2026-03-01",
                     flag, text);
}

static int run(struct cli *cli, int argc, char **argv)
{
    ListAuditRequest q = LIST_AUDIT_REQUEST__INIT;
    const char *since = NULL, *until = NULL;
    int64_t limit = 100;
    const struct arg_flag flags[] = {{"tenant", 't', ARG_TEXT, &q.tenant, NULL},
                                     {"user", 'u', ARG_TEXT, &q.user, NULL},
                                     {"method", 'm', ARG_TEXT, &q.method, NULL},
                                     {"since", 0, ARG_TEXT, &since, NULL},
                                     {"until", 0, ARG_TEXT, &until, NULL},
                                     {"limit", 'n', ARG_INT, &limit, NULL},
                                     {0}};
    if (args_parse(flags, argc, argv, NULL, 0) < 0) {
        return EXIT_USAGE;
    }
    int code = read_moment(argv[0], "since", since, &q.from_us);
    code = code ? code : read_moment(argv[0], "until", until, &q.to_us);
    if (code) {
        return code;
    }
    if (limit < 1 || limit > COLLECT_MAX) {
        return cli_usage(argv[0], "--limit: from 1 to %d", COLLECT_MAX);
    }
    q.has_from_us = since != NULL;
    q.has_to_us = until != NULL;
    struct collect c = {0};
    struct error err;
    if (fetch(cli, &q, limit, &c, &err)) {
        code = cli_fail(&err);
    } else {
        admin_print_list(cli, &list, (const ProtobufCMessage *const *)c.items, c.num);
    }
    collect_free(&c);
    return code;
}

const struct verb admin_audit = {
    .name = "audit",
    .args = "[--tenant T] [--user U] [--method M] [--since 2d] [--until T] [--limit N]",
    .help = "who did what, and what was refused",
    .text = "Every change, and every call that was refused for want of rights; newest first.\n\n"
            "  -t, --tenant T  only this tenant's\n"
            "  -u, --user U    only this user's\n"
            "  -m, --method M  only this call: Jobs/Cancel\n"
            "      --since T   2d, 12h ago and later, or from a day on: 2026-03-01\n"
            "      --until T   the same for the end\n"
            "  -n, --limit N   at most N rows (100)\n\n"
            "  tandem admin audit --method Jobs/Cancel --since 7d\n"
            "  tandem admin audit --since 2026-03-01 -n 100000 -o csv > march.csv\n",
    .run = run,
};
