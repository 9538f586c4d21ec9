/* The answer to Admin/GetUsage, from the database. */
#ifndef TANDEM_SERVER_USAGE_ANSWER_H
#define TANDEM_SERVER_USAGE_ANSWER_H

#include "server/store/store.h"

/* The cluster at the moment. */
struct usage_figures {
    int64_t num_devices, num_drained, num_used, num_free;
};

/* tenant: NULL = all. is_admin: with what concerns all tenants. The caller frees *out. */
int usage_answer(struct store *reader, const GetUsageRequest *r, const char *tenant, bool is_admin,
                 const struct usage_figures *figures, int64_t now_us, GetUsageReply **out,
                 struct error *err);

#endif
