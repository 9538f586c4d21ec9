/* Faults that public systems have had, one test each: what they got wrong, and what is right.
 * Small models in fp64, ranks as threads, against one rank or against a number that is known. */
#include "named.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* named_faults_test [PATTERN]: only the tests whose names fit it. */
int main(int argc, char **argv)
{
    gang_quiet();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_final_norms_gradient_under_sequence_parallel_is_whole_on_every_rank),
        cmocka_unit_test(accumulating_in_a_reduce_group_of_one_adds_each_micro_batch_once),
        cmocka_unit_test(a_loss_over_a_cut_vocabulary_is_the_whole_ones),
        cmocka_unit_test(unequal_targets_over_data_ranks_weigh_each_target_alike),
        cmocka_unit_test(plain_hybrid_and_sharded_data_parallel_have_one_norm),
        cmocka_unit_test(a_matrix_used_twice_gets_both_gradients_once),
        cmocka_unit_test(a_vocabulary_that_tensor_ranks_dont_divide_keeps_its_rows),
        cmocka_unit_test(sgd_ends_where_one_rank_ends_so_no_factor_is_hidden),
        cmocka_unit_test(counts_that_are_no_powers_of_two_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
