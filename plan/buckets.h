/* Buckets: runs of the expanded parameter table, in ready order, that are reduced (and with ZeRO
 * gathered) in one call. A bucket is closed as soon as it holds the wanted number of bytes, or from
 * ZeRO-2 on with its unit; a parameter is never split. Padding at its end makes it come out even
 * over the ranks that share it. Together they cover the flat buffer exactly once. */
#ifndef TANDEM_PLAN_BUCKETS_H
#define TANDEM_PLAN_BUCKETS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "plan/params.h"
#include "proto/names.h"

/* More would make the plan large and each reduce small. */
#define BUCKETS_MAX 4096

struct bucket_rule {
    bool by_unit;      /* one bucket a unit: mb isn't used */
    double mb;         /* 2^20 bytes of gradients */
    int64_t grad_size; /* bytes of an element */
    int64_t shards;    /* ranks that share one: numel is a multiple of shards x alignment */
};

/* Fills stage->buckets (owned by the stage) and flat_numel from a table without buckets. */
int buckets_build(Stage *stage, const struct param_table *table, const struct bucket_rule *rule,
                  struct error *err);

#endif
