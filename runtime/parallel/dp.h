/* Data parallelism: the sums over the data ranks.
 *
 * Gradients are reduced bucket by bucket, each one contiguous in the flat buffer, on a stream of
 * their own: a bucket starts when the compute stream has finished what the plan's action list has
 * put before it, and backward goes on meanwhile. There are only sums here; the loss was seeded with
 * 1 / (valid targets of the whole step). With one rank all of this is nothing. */
#ifndef TANDEM_RUNTIME_PARALLEL_DP_H
#define TANDEM_RUNTIME_PARALLEL_DP_H

#include <stdint.h>

#include "proto/names.h"
#include "runtime/comm/comm.h"

struct dp;

struct dp_options {
    struct device *dev;
    struct stream *compute;
    struct comm *comm;  /* of the data axis, borrowed; NULL with one rank */
    const Stage *stage; /* its buckets; borrowed */
    enum dtype dtype;
    void *grads; /* flat */
};

int dp_new(struct dp **out, const struct dp_options *options, struct error *err);
/* After a failed step too: what is under way ends with the communicator's error. */
void dp_free(struct dp *dp);

/* Starts the sum of a bucket; its gradients may not be touched until dp_wait. */
int dp_reduce_bucket(struct dp *dp, int32_t bucket, struct error *err);
/* Starts the sum of words [n] (device memory), as above. */
int dp_reduce_words(struct dp *dp, double *words, int64_t n, struct error *err);
/* Waits for all that was started. */
int dp_wait(struct dp *dp, struct error *err);

#endif
