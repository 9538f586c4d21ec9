/* Collective communication over an axis group, in NCCL's shape: each call goes onto a stream and
 * returns at once; its error, if any, comes out of the stream's sync. Every member makes the same
 * calls in the same order. All members get the same bits of a sum; comm_host adds in rank order,
 * NCCL as it likes, and a maximum of NCCL's may lose a NaN.
 *
 * Every call has a deadline. When it passes, when a member dies or when someone aborts, the call
 * fails on all the others and the text names the missing rank and the operation. After a failure
 * the communicator is of no use but to be freed. */
#ifndef TANDEM_RUNTIME_COMM_H
#define TANDEM_RUNTIME_COMM_H

#include <stdbool.h>
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
    /* n elements to, or from, member peer of the group. Between group_begin and group_end they (and
     * only they) are collected, and all of them go as one call at group_end: so neighbours may send
     * to each other without an order. Outside of a group each is a call by itself. */
    int (*send)(struct comm *c, struct stream *s, const void *buf, int64_t n, enum dtype t,
                int32_t peer, struct error *err);
    int (*recv)(struct comm *c, struct stream *s, void *buf, int64_t n, enum dtype t, int32_t peer,
                struct error *err);
    int (*group_begin)(struct comm *c, struct error *err);
    int (*group_end)(struct comm *c, struct stream *s, struct error *err);
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

/* ---- all ranks --------------------------------------------------------------------------------
 */

struct comm_world;

struct comm_world_ops {
    const char *name;
    /* After all its communicators. */
    void (*close)(struct comm_world *w);
    /* A communicator of the members (world ranks, ascending, this rank among them), whose calls run
     * on streams of dev. All ranks of the world make theirs in the same order, each with the group
     * that it belongs to; whether it waits for the others is the kind's. name: what it is, for
     * messages: "the shard group (data 0-3)". background: its calls wait while other work goes on
     * (a slow disk), so a standstill isn't put down to them if there is another. One communicator
     * belongs to one stream. */
    int (*comm_new)(struct comm_world *w, struct device *dev, const int32_t *members, int32_t num,
                    const char *name, bool background, struct comm **out, struct error *err);
    /* This rank can't go on: every call of every rank fails from now on, saying reason. Any thread.
     */
    void (*abort)(struct comm_world *w, const char *reason);
    /* Zeroed, 64-byte aligned memory that the others read in place; NULL = it is full. Never
     * returned. No operation: there is no such memory, the device's own is as good. */
    void *(*alloc)(struct comm_world *w, size_t bytes);
};

struct comm_world {
    const struct comm_world_ops *ops;
    int32_t rank, num_ranks;
};

#endif
