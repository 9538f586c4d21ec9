/* A model that goes wrong at a step and on a rank that the test chooses. */
#ifndef TANDEM_TESTS_PARALLEL_BAD_MODEL_H
#define TANDEM_TESTS_PARALLEL_BAD_MODEL_H

#include <stdint.h>

/* A copy of llama-tiny's folder in which one row of the embedding is NaN: that of a token that data
 * rank 1 of 2 has in its share of the step, and nobody before. */
void bad_model_write(const char *dir, int64_t step);

#endif
