/* The stored batch of a reference case: what went in, and what came out of another implementation.
 */
#ifndef TANDEM_TESTS_PARALLEL_REFERENCE_H
#define TANDEM_TESTS_PARALLEL_REFERENCE_H

#include <stdbool.h>

#include "golden.h"
#include "runtime/ckpt/safetensors.h"

#define REFERENCE_ROWS 2
#define REFERENCE_IGNORED (-100)

struct reference {
    struct st_file *file;
    int32_t *ids, *targets;        /* [2, T] */
    int32_t *positions, *segments; /* packed cases; else NULL */
    int64_t num_targets;           /* that aren't ignored */
};

struct reference reference_open(const struct golden *golden);
void reference_close(struct reference *r);
bool reference_has(const struct reference *r, const char *name);
/* The first n elements of a tensor; the caller frees. */
double *reference_read(const struct reference *r, const char *name, int64_t n);

/* |got - want| / |want| in the L2 norm; want is zero: |got|. */
double reference_off(const double *got, const double *want, int64_t n);

#endif
