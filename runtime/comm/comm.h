/* Collective communication over an axis group, in NCCL's shape: each call goes onto a stream and
 * returns at once; its error, if any, comes out of the stream's sync. Every member makes the same
 * calls in the same order. Sums are in rank order: all members get the same bits.
 *
 * Every call has a deadline. When it passes, when a member dies or when someone aborts, the call
 * fails on all the others and the text names the missing rank and the operation. After a failure
 * the communicator is of no use but to be freed. */
#ifndef TANDEM_RUNTIME_COMM_H
#define TANDEM_RUNTIME_COMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

struct comm;

enum comm_op { COMM_SUM, COMM_MAX };

struct comm_ops {
    const char *name;
    void (*free)(struct comm *c);
    /* buf [n], in place. */
    int (*all_reduce)(struct comm *c, struct stream *s, void *buf, int64_t n, enum dtype t,
                      enum comm_op op, struct error *err);
    /* dst [n] = this rank's slice of the sum of src [n * size]. dst may be that slice of src. */
    int (*reduce_scatter)(struct comm *c, struct stream *s, void *dst, const void *src, int64_t n,
                          enum dtype t, struct error *err);
    /* dst [n * size] = the members' src [n]. src may be this rank's slice of dst. */
    int (*all_gather)(struct comm *c, struct stream *s, void *dst, const void *src, int64_t n,
                      enum dtype t, struct error *err);
    int (*broadcast)(struct comm *c, struct stream *s, void *buf, int64_t n, enum dtype t,
                     int32_t root, struct error *err);
    int (*barrier)(struct comm *c, struct stream *s, struct error *err);
};

#define COMM_WHAT_MAX 32

struct comm {
    const struct comm_ops *ops;
    int32_t rank; /* in the group */
    int32_t size;
    char what[COMM_WHAT_MAX]; /* of the next call; "" = nothing was said */
};

/* What c's next call is about ("bucket 3"), for the text of its failure: the same on all members.
 * c may be NULL. */
void comm_say(struct comm *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
