#include "clients/cli/admin.h"

#include <stdio.h>

#include "base/clock.h"
#include "clients/cli/human.h"
#include "clients/cli/list.h"
#include "clients/cli/verbs.h"

void admin_cell_time(struct table *t, int64_t time_us, int64_t now_us, const char *none)
{
    char h[HUMAN_MAX], raw[32];
    snprintf(raw, sizeof raw, "%lld", (long long)time_us);
    table_cell(t, time_us > 0 ? human_time(h, time_us, now_us) : none, raw, NULL);
}

void admin_cell_int(struct table *t, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    table_cell(t, text, NULL, NULL);
}

void admin_cell_state(struct table *t, bool disabled)
{
    table_cell(t, disabled ? "disabled" : "active", NULL, disabled ? "\033[31m" : "\033[32m");
}

static void print_table(const struct cli *cli, const struct admin_list *list,
                        const ProtobufCMessage *const *messages, size_t num)
{
    int64_t now_us = clock_wall_us();
    struct table *t = table_new(list->names);
    for (size_t i = 0; i < num; i++) {
        list->row(t, messages[i], now_us);
    }
    table_print(t, cli);
    table_free(t);
}

void admin_print_list(const struct cli *cli, const struct admin_list *list,
                      const ProtobufCMessage *const *messages, size_t num)
{
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        list_print(cli, messages, num);
    } else if (num == 0 && cli->format == FORMAT_TABLE) {
        printf("%s\n", list->none);
    } else {
        print_table(cli, list, messages, num);
    }
}

void admin_print_one(const struct cli *cli, const struct admin_list *list,
                     const ProtobufCMessage *message, const char *sentence)
{
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        cli_print_message(cli, message);
    } else if (cli->format == FORMAT_CSV) {
        print_table(cli, list, &message, 1);
    } else {
        printf("%s\n", sentence);
    }
}

static const struct verb *const verbs[] = {
    &admin_init,  &admin_tenant, &admin_quota,   &admin_user, &admin_token,
    &admin_audit, &admin_backup, &admin_restore, NULL,
};

const struct verb verb_admin = {
    .name = "admin",
    .args = "VERB ...",
    .help = "certificates, tenants, quotas, users, tokens, audit, backup",
    .text = "Most of it needs the role admin, or tenant-admin within its tenant. A first tenant "
            "with a\nuser and a token:\n\n"
            "  tandem admin tenant add red\n"
            "  tandem admin user add ann --tenant red\n"
            "  tandem admin token create --user ann --tenant red --label laptop --out ann.token\n",
    .subverbs = verbs,
};
