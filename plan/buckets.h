/* Gradient buckets: runs of the expanded parameter table, in ready order, that are reduced in one
 * call. A bucket is closed as soon as it holds the wanted number of bytes; a parameter is never
 * split. Together they cover the flat buffer exactly once. */
#ifndef TANDEM_PLAN_BUCKETS_H
#define TANDEM_PLAN_BUCKETS_H

#include <stdint.h>

#include "base/error.h"
#include "plan/params.h"
#include "proto/names.h"

/* More would make the plan large and each reduce small. */
#define BUCKETS_MAX 4096

/* Fills stage->buckets (owned by the stage). bucket_mb: in 2^20 bytes of gradients of grad_size
 * bytes an element. */
int buckets_build(Stage *stage, const struct param_table *table, double bucket_mb,
                  int64_t grad_size, struct error *err);

#endif
