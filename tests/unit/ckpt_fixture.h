/* A small model's state for the checkpoint tests: the table of a Llama of two layers, flat buffers
 * of random numbers (odd bit patterns among them), padding zero. */
#ifndef TANDEM_TESTS_UNIT_CKPT_FIXTURE_H
#define TANDEM_TESTS_UNIT_CKPT_FIXTURE_H

#include "runtime/ckpt/ckpt.h"

struct fixture {
    struct param_table table; /* owned */
    struct ckpt_state state;  /* buffers owned */
    size_t bytes;             /* of one buffer */
};

void fixture_new(struct fixture *f, enum dtype dtype, bool moments, uint64_t seed);
/* The same table and type; buffers zero. */
void fixture_like(struct fixture *f, const struct fixture *other);
void fixture_free(struct fixture *f);
void fixture_assert_equal(const struct fixture *a, const struct fixture *b);
/* What writer of num_writers does before the commit, all of which hold the whole state. */
int fixture_save_part(const char *parent, const struct fixture *f, const struct ckpt_meta *meta,
                      int32_t writer, int32_t num_writers, struct error *err);
/* The fixture's weights as a complete checkpoint below parent; dir gets its folder. */
void fixture_checkpoint(const char *parent, const struct fixture *f, int64_t step, char dir[256]);
struct ckpt_meta fixture_meta(int64_t step, int32_t attempt);

#endif
