/* How the operations of a backend are compared with the reference: a case is an operation at a
 * shape; it is run on a side (a device with its table) in a type and leaves its outputs as doubles.
 *
 * Nothing here reaches into device memory: all goes through the device's copies, so that a side may
 * be an accelerator. Inputs are drawn from the case's own numbers and are exact in the type that is
 * compared, so that all sides see the same; what a backward pass takes from a forward pass is the
 * truth's, rounded (side_pass). */
#ifndef TANDEM_TESTS_PARITY_OPS_CASE_H
#define TANDEM_TESTS_PARITY_OPS_CASE_H

#include "kernels/kernels.h"

#define MAX_OUTPUTS 8

struct outputs {
    int num;
    double *value[MAX_OUTPUTS];
    int64_t n[MAX_OUTPUTS];
    enum dtype t[MAX_OUTPUTS];
};

struct held; /* memory of a side */

struct side {
    struct device *dev;
    const struct kernels *k;
    struct stream *s;
    enum dtype exact;            /* inputs are numbers of this type, also where they lie in f64 */
    const struct outputs *truth; /* what the reference gave; NULL: this is the reference */
    int64_t skip;                /* numbers between an allocation's start and what is used of it */
    int64_t nan_at;              /* as in struct shape */
    uint64_t nan_of;
    struct held *held;
};

/* A shape and switches; an operation reads those that it knows. */
struct shape {
    int64_t r, d, v, n, m, k;
    int64_t b, t, h, kv, e;
    bool trans_a, trans_b;
    bool aligned; /* gemm: rows begin at multiples of 8 numbers */
    double alpha, beta;
    bool wide_c, c0, bias, gelu, gelu_of; /* gemm */
    bool accumulate, alias, segments, positions, backward, no_gradient;
    int64_t first;    /* id of the table's row 0 */
    int64_t ld;       /* columns of a part of the vocabulary */
    int num_parts;    /* of a vocabulary; spans or runs of a list */
    bool no_scale;    /* optimizers: no factor of the gradients */
    bool equal;       /* all logits are the same */
    bool biased;      /* errors may be of one sign */
    int64_t document; /* mean length of the documents of a row; 0 = a few positions */
    bool recur;       /* segments come again, or are numbered downwards */
    double size;      /* of the inputs; 0 = 1 */
    double centre;    /* what the inputs lie around */
    double floor;     /* errors are measured against this at least: where outputs cancel */
    double floor_dx;  /* the same for a norm's dx, where it is larger */
    /* bf16 on an accelerator: error that is allowed besides the result's own rounding, in units of
     * 2^-8 of the largest number: where it rounds between the steps of one operation. */
    double ulps_bf16;
    int64_t skip;
    /* Number nan_at (from 1; 0 = none) of the input with the seed nan_of is a NaN; nan_spreads: it
     * may come out in more places than those that depend on it. */
    int64_t nan_at;
    uint64_t nan_of;
    bool nan_spreads;
};

typedef void (*op_run)(const struct side *side, enum dtype t, const struct shape *s,
                       struct outputs *out);

struct side side_open(const char *backend, int num_threads);
void side_close(struct side *side);
/* Frees all memory that was taken on it. */
void side_release(struct side *side);
void outputs_free(struct outputs *out);

/* Device memory with n numbers that follow from seed, of about the given size; wide: of t's wide
 * type. */
void *side_draw(const struct side *side, enum dtype t, int64_t n, uint64_t seed, double size);
void *side_draw_wide(const struct side *side, enum dtype t, int64_t n, uint64_t seed, double size);
void *side_draw_around(const struct side *side, enum dtype t, int64_t n, uint64_t seed, double size,
                       double centre);
/* The same numbers in host memory, of type `exact`; the caller frees them. */
double *draw_numbers(enum dtype exact, int64_t n, uint64_t seed, double size, double centre);
/* n zeros; with poison: NaNs, for what an operation must write. */
void *side_zeros(const struct side *side, enum dtype t, int64_t n);
void *side_poison(const struct side *side, enum dtype t, int64_t n);
void *side_poison_bytes(const struct side *side, size_t bytes);
void *side_upload(const struct side *side, enum dtype t, const double *value, int64_t n);
int32_t *side_ints(const struct side *side, int64_t n, uint64_t seed, int64_t below);
int32_t *side_upload_ints(const struct side *side, const int32_t *value, int64_t n);
/* Host memory that the caller frees. */
int32_t *draw_ints(int64_t n, uint64_t seed, int64_t below);
double *side_download(const struct side *side, enum dtype t, const void *mem, int64_t n);
/* Appends n numbers of device memory to the outputs. */
void side_output(const struct side *side, enum dtype t, const void *mem, int64_t n,
                 struct outputs *out);
/* The same, and what the next operation takes in their place. */
void *side_pass(const struct side *side, enum dtype t, const void *mem, int64_t n,
                struct outputs *out);
void *side_pass_wide(const struct side *side, enum dtype t, const void *mem, int64_t n,
                     struct outputs *out);

/* Each backend against ref in f64 on the same inputs, in each of its types. The error of a number
 * is at most its own rounding to its type and, for all that the operation sums up, ulps_f32 * 2^-24
 * (f64: 1e-12, or as many ulps) of the largest number of the output (per_element: of the number
 * itself). And the same bits for 1, 2 and 3 threads, or for a second run.
 *
 * The environment: TANDEM_PARITY_BACKEND (host, cuda), TANDEM_PARITY_STRIDE n (only each n-th
 * case), TANDEM_PARITY_LARGEST n (no side of a shape is longer), TANDEM_PARITY_SEED. */
void check_parity(const char *what, op_run run, const struct shape *s, double ulps_f32,
                  bool per_element);

#endif
