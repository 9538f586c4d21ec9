/* A model folder that continues token sequences: weights, one forward pass at a time, sampling.
 *
 * It keeps the keys and values of the tokens it has seen. When the window is full, the newer half
 * of it is computed again as the new beginning, so a text may be longer than the window. */
#ifndef TANDEM_RUNTIME_TOOL_GENERATOR_H
#define TANDEM_RUNTIME_TOOL_GENERATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/names.h"

struct generator;

struct sampling {
    double temperature; /* 0 = always the likeliest */
    int64_t top_k;      /* among the k likeliest; 0 = all */
    uint64_t seed;
};

/* dir: a Hugging Face folder, or a checkpoint of a job (JOB/ckpt/step-...). num_threads: for the
 * kernels. */
int generator_open(struct generator **out, const char *dir, int num_threads, struct error *err);
void generator_close(struct generator *g);
const ModelConfig *generator_config(const struct generator *g);

/* Does the text end with this token: is it one of the config's eos_token_id? */
bool generator_is_end(const struct generator *g, int32_t id);

/* Appends tokens to the sequence. */
int generator_feed(struct generator *g, const int32_t *ids, int64_t num, struct error *err);
/* Draws the token that comes next and appends it. Something has been fed. The i-th draw of a
 * generator depends on the seed, i and the logits alone. */
int generator_next(struct generator *g, const struct sampling *sampling, int32_t *id,
                   struct error *err);

/* The draw itself: a number u in [0, 1) picks from the softmax of logits [v] / temperature, among
 * the top_k. order [v]: scratch. */
int32_t generator_pick(const float *logits, int64_t v, const struct sampling *sampling, double u,
                       int32_t *order);

#endif
