/* The page of `tandem top`, made of what the server answered. */
#ifndef TANDEM_CLIENTS_CLI_TOP_H
#define TANDEM_CLIENTS_CLI_TOP_H

#include "base/buf.h"
#include "clients/cli/table.h"

struct top_view {
    const GetUsageReply *usage;
    Job *const *running; /* as they are to be shown */
    size_t num_running, all_running;
    Job *const *queued;
    size_t num_queued;          /* those shown; the usage has the count of all */
    const WhyReply *const *why; /* of each queued job; NULL = not known */
    int64_t now_us;
};

/* First places first; of which none is known, last. why[i] is that of queued[i]. */
void top_sort_queue(Job **queued, const WhyReply **why, size_t num);
void top_write(const struct top_view *v, const struct table_look *look, struct buf *out);

#endif
