/* What one optimizer step of rank 0 launches, call by call, in the order in which the rank enqueues
 * it: the operations of the kernels' table with their shapes, what is zeroed and copied,
 * collectives, and the events by which streams wait for each other. It follows the plan's own list
 * of actions and says of each what runtime/layers, runtime/parallel and runtime/rank do there;
 * launches_test holds the two together.
 *
 * FLOPs are those that count for MFU: 2 m n k of a product; of attention forward 2 products of the
 * scores that a query sees, backward 4. Bytes are of device memory, as the CUDA kernels' heads say
 * them. */
#ifndef TANDEM_PLAN_LAUNCHES_H
#define TANDEM_PLAN_LAUNCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/names.h"

enum launch_op {
    /* Of kernels/kernels.h, by their names there. */
    LAUNCH_GEMM,
    LAUNCH_EMBED_FWD,
    LAUNCH_EMBED_BWD,
    LAUNCH_RMSNORM_FWD,
    LAUNCH_RMSNORM_BWD,
    LAUNCH_LAYERNORM_FWD,
    LAUNCH_LAYERNORM_BWD,
    LAUNCH_ROPE,
    LAUNCH_ATTENTION_FWD,
    LAUNCH_ATTENTION_BWD,
    LAUNCH_SWIGLU_FWD,
    LAUNCH_SWIGLU_BWD,
    LAUNCH_ADD_BIAS,
    LAUNCH_COLUMN_SUM,
    LAUNCH_ADD,
    LAUNCH_SCALE,
    LAUNCH_CROSS_ENTROPY,
    LAUNCH_CE_MAX,
    LAUNCH_CE_SUM,
    LAUNCH_CE_FINISH,
    LAUNCH_SUM_SQUARES,
    LAUNCH_SUM_DOUBLE,
    LAUNCH_CLIP,
    LAUNCH_ADAMW,
    LAUNCH_SGD,
    /* Of the device: zero, and copies on it, to it, from it. */
    LAUNCH_ZERO,
    LAUNCH_COPY,
    LAUNCH_UPLOAD,
    LAUNCH_DOWNLOAD,
    /* Of a communicator. */
    LAUNCH_ALL_REDUCE,
    LAUNCH_REDUCE_SCATTER,
    LAUNCH_ALL_GATHER,
    /* No work: a mark in a stream, and a stream that waits for the latest one of that number. */
    LAUNCH_RECORD,
    LAUNCH_WAIT,
    NUM_LAUNCH_OPS,
};

enum launch_kind {
    LAUNCH_KIND_GEMM,
    LAUNCH_KIND_ATTENTION,
    LAUNCH_KIND_NORM,
    LAUNCH_KIND_POINTWISE, /* rope, activations, residuals, biases, embeddings */
    LAUNCH_KIND_LOSS,
    LAUNCH_KIND_OPTIMIZER, /* with the gradients' norm */
    LAUNCH_KIND_MEMORY,    /* zeroed, copied */
    LAUNCH_KIND_COMM,
    LAUNCH_KIND_IDLE, /* of no launch: what a step waits */
    NUM_LAUNCH_KINDS,
};

enum launch_stream { LAUNCH_COMPUTE, LAUNCH_REDUCE, LAUNCH_GATHER, NUM_LAUNCH_STREAMS };

/* Where in the step; blocks are alike. */
enum launch_place {
    LAUNCH_BEGIN,
    LAUNCH_FORWARD_EMBED,
    LAUNCH_FORWARD_BLOCK,
    LAUNCH_FORWARD_HEAD,
    LAUNCH_BACKWARD_HEAD,
    LAUNCH_BACKWARD_BLOCK,
    LAUNCH_BACKWARD_EMBED,
    LAUNCH_WEIGHTS, /* gathers */
    LAUNCH_GRADS,   /* slots opened, sums */
    LAUNCH_END,
    NUM_LAUNCH_PLACES,
};

#define LAUNCH_SIZES 5
/* What goes with a product: its bias, its GELU, a factor of GELU's derivative. */
#define LAUNCH_BIAS 1u
#define LAUNCH_GELU 2u
#define LAUNCH_GELU_OF 4u

struct launch {
    enum launch_op op;
    enum launch_stream stream;
    enum launch_place place;
    const char *what; /* which one of them: "q", "k: weight"; static, maybe "" */
    /* gemm m n k; rows and columns of norms, embeddings, biases, losses; rope R heads E; attention
     * B T H K E; numbers of what is pointwise, of the optimizer's (and how many runs), of a
     * collective's whole buffer (and its ranks); bytes of zero and copies; the mark of record and
     * wait. 0 where there is no more. */
    int64_t size[LAUNCH_SIZES];
    int32_t elem;    /* bytes of a number; of gemm those of A and B */
    int32_t c_elem;  /* gemm: of C */
    unsigned beside; /* gemm: LAUNCH_BIAS and the like, in the same call */
    bool adds;       /* gemm: reads what it adds to; a norm's backward pass: accumulates */
    bool even;       /* gemm: all rows begin at multiples of 16 bytes */
    bool captured;   /* part of a graph, where passes are captured */
    bool graph;      /* the first launch of one */
    int32_t num_kernels;
    double flops, bytes;
    Axis axis; /* of a collective */
};

/* Words of the table, and of the kinds for people. */
extern const char *const launch_op_names[NUM_LAUNCH_OPS];
extern const char *const launch_kind_names[NUM_LAUNCH_KINDS];
extern const char *const launch_place_names[NUM_LAUNCH_PLACES];
enum launch_kind launch_kind(const struct launch *l);

typedef void (*launch_fn)(void *arg, const struct launch *l);

/* Calls fn for each. Fails where the plan has no list of actions, that is where its layout can't be
 * run yet, in words. Steps behind the first: what is read of a step is read in the next one. */
int launches_each(const Plan *plan, launch_fn fn, void *arg, struct error *err);

#endif
