/* Whole tensors, put together from what all ranks hold of them: true shapes, Hugging Face's names,
 * fp64. Parts that lie on several ranks have to be equal bit for bit, padding zero, and each
 * element counted (in norms, checkpoints) by exactly one rank. What isn't as it must be stands in
 * fault: ranks are threads, on which cmocka's assertions don't work. */
#ifndef TANDEM_TESTS_PARALLEL_WHOLE_H
#define TANDEM_TESTS_PARALLEL_WHOLE_H

#include <pthread.h>
#include <stdint.h>

#include "kernels/tensor.h"
#include "plan/params.h"
#include "plan/pieces.h"
#include "proto/names.h"

struct whole_tensor {
    char name[PARAM_NAME_MAX];
    int32_t num_dims;
    int64_t shape[PARAM_DIMS_MAX], numel;
    double *values;
    uint8_t *seen, *counted; /* how many ranks brought each element, and count it */
};

struct whole {
    pthread_mutex_t lock;
    int32_t num;
    struct whole_tensor *tensors;
    char fault[512];
};

/* The tensors of a plan of one stage, nothing seen. */
void whole_init(struct whole *w, const Plan *plan);
void whole_free(struct whole *w);
struct whole_tensor *whole_find(const struct whole *w, const char *name);

/* What one rank brings: a buffer, which elements of the flat layout it holds (ascending), and of
 * those the ones that are looked at; whether the rank counts them, if the tensor axis lets it. */
struct whole_part {
    const struct param_table *table;
    enum dtype dtype;
    int64_t tensor_size, tensor_idx;
    const void *data;
    const struct flat_range *ranges, *owned;
    int32_t num_ranges, num_owned;
    bool counts;
    int rank; /* for the fault */
};
void whole_add(struct whole *w, const struct whole_part *part);
/* After all ranks: nothing is missing, each element was counted once. */
void whole_check(struct whole *w);

/* Largest distances of two of the same model; of the tensor where it is largest. */
struct whole_distance {
    double l2, max; /* |a - b| / |a| in the two norms */
    char l2_name[PARAM_NAME_MAX], max_name[PARAM_NAME_MAX];
};
/* skip: tensors it names are left out (NULL = none). */
struct whole_distance whole_compare(const struct whole *a, const struct whole *b,
                                    bool (*skip)(const char *name));

#endif
