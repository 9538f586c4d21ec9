/* How the operations of one backend are compared with the reference: a case is an operation at a
 * shape; it is run on a side (a device with its table) in a type and leaves its outputs as doubles.
 * Inputs are drawn from the case's own numbers and are exact in f32, so that all sides see the
 * same. */
#ifndef TANDEM_TESTS_PARITY_OPS_CASE_H
#define TANDEM_TESTS_PARITY_OPS_CASE_H

#include "kernels/kernels.h"

struct side {
    struct device *dev;
    const struct kernels *k;
    struct stream *s;
};

#define MAX_OUTPUTS 8

struct outputs {
    int num;
    double *value[MAX_OUTPUTS];
    int64_t n[MAX_OUTPUTS];
};

/* A shape and switches; an operation reads those that it knows. */
struct shape {
    int64_t r, d, v, n, m, k;
    int64_t b, t, h, kv, e;
    bool trans_a, trans_b;
    double alpha, beta;
    bool accumulate, alias, segments, positions, backward, no_gradient;
    int64_t first; /* id of the table's row 0 */
    int64_t ld;    /* columns of a part of the vocabulary */
    int num_parts;
    bool equal;       /* all logits are the same */
    int64_t document; /* mean length of the documents of a row; 0 = a few positions */
    bool recur;       /* segments come again, or are numbered downwards */
    double size;      /* of the inputs; 0 = 1 */
    double centre;    /* what the inputs lie around */
    double floor;     /* errors are measured against this at least: where outputs cancel */
};

typedef void (*op_run)(const struct side *side, enum dtype t, const struct shape *s,
                       struct outputs *out);

struct side side_open(const char *backend, int num_threads);
void side_close(struct side *side);
void outputs_free(struct outputs *out);

/* Device memory with n numbers that follow from seed, of about the given size. */
void *side_draw(const struct side *side, enum dtype t, int64_t n, uint64_t seed, double size);
void *side_draw_around(const struct side *side, enum dtype t, int64_t n, uint64_t seed, double size,
                       double centre);
/* n zeros; with poison: NaNs, for what an operation must write. */
void *side_zeros(const struct side *side, enum dtype t, int64_t n);
void *side_poison(const struct side *side, enum dtype t, int64_t n);
void *side_upload(const struct side *side, enum dtype t, const double *value, int64_t n);
int32_t *side_ints(const struct side *side, int64_t n, uint64_t seed, int64_t below);
/* Appends n numbers of device memory to the outputs. */
void side_output(const struct side *side, enum dtype t, const void *mem, int64_t n,
                 struct outputs *out);

/* cpu against ref in f64: in f32 within ulps_f32 * 2^-24, in f64 within 1e-12
 * (or as many ulps), of the largest
 * number of each output (per_element: of each number itself); and the same bits for 1, 2 and 3
 * threads. */
void check_parity(const char *what, op_run run, const struct shape *s, double ulps_f32,
                  bool per_element);

#endif
