/* `tandem admin ...`: tenants, users, tokens, audit, backup. One file a noun, each a verb with its
 * own verbs below it; admin.c lists them. */
#ifndef TANDEM_CLIENTS_CLI_ADMIN_H
#define TANDEM_CLIENTS_CLI_ADMIN_H

#include "clients/cli/table.h"

extern const struct verb admin_audit;
extern const struct verb admin_backup;
extern const struct verb admin_init;
extern const struct verb admin_quota;
extern const struct verb admin_restore;
extern const struct verb admin_tenant;
extern const struct verb admin_token;
extern const struct verb admin_user;

/* Rows that a list is made of: columns, and what a message gives to them. now_us: for "today". */
struct admin_list {
    const char *const *names; /* as table_new */
    void (*row)(struct table *t, const ProtobufCMessage *message, int64_t now_us);
    const char *none; /* a sentence where there is no row */
};

/* In the format asked for. */
void admin_print_list(const struct cli *cli, const struct admin_list *list,
                      const ProtobufCMessage *const *messages, size_t num);
/* One message as a reply to a change: json or yaml, or csv of its row, or the sentence. */
void admin_print_one(const struct cli *cli, const struct admin_list *list,
                     const ProtobufCMessage *message, const char *sentence);
/* Cells: a moment, "-" where there is none; a number. */
void admin_cell_time(struct table *t, int64_t time_us, int64_t now_us, const char *none);
void admin_cell_int(struct table *t, int64_t value);
/* active, or disabled in red. */
void admin_cell_state(struct table *t, bool disabled);

#endif
