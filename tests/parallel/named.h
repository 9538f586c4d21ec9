/* What tests of faults that public systems have had share: variants of a layout, run for a step on
 * a small model in fp64, against one rank or against a number that is known. Each test is a
 * function of its own; the number in its comment is its place among the faults. */
#ifndef TANDEM_TESTS_PARALLEL_NAMED_H
#define TANDEM_TESTS_PARALLEL_NAMED_H

#include "record.h"
#include "shapes.h"

#define NAMED_SAME 1e-12
#define NAMED_SGD "name: sgd, lr: 0.5, weight_decay: 0.05"

/* What differs between the layouts of a test. */
struct variant {
    int64_t data, tensor, zero_stage, shard_size, micro;
    bool sequence_parallel;
};
extern const struct variant named_one_rank;

/* One step of SGD without clipping. */
struct gang_spec named_spec(const struct shape_files *f, const struct variant *v);
/* In a buffer that the next call writes again. */
const char *named_words(const struct variant *v);

void named_check_close(const char *what, double got, double want);
void named_check_same(const char *what, const struct whole *want, const struct whole *got);
/* Loss, norm and every gradient of the first step. */
void named_check_first_step(const char *what, const struct run *want, const struct run *got);

void the_final_norms_gradient_under_sequence_parallel_is_whole_on_every_rank(void **state);
void accumulating_in_a_reduce_group_of_one_adds_each_micro_batch_once(void **state);
void a_loss_over_a_cut_vocabulary_is_the_whole_ones(void **state);
void unequal_targets_over_data_ranks_weigh_each_target_alike(void **state);
void plain_hybrid_and_sharded_data_parallel_have_one_norm(void **state);
void a_matrix_used_twice_gets_both_gradients_once(void **state);
void a_vocabulary_that_tensor_ranks_dont_divide_keeps_its_rows(void **state);
void sgd_ends_where_one_rank_ends_so_no_factor_is_hidden(void **state);
void counts_that_are_no_powers_of_two_change_nothing(void **state);

#endif
