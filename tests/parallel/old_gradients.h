/* What lies in a rank's gradient memory before it is begun, and whether first products are written
 * over it. Linked with --wrap=store_begin_step,--wrap=store_open_grads,--wrap=store_grads_are_new,
 * into tests whose ranks are threads and into a tandem-rank (old_gradients_rank). */
#ifndef TANDEM_TESTS_PARALLEL_OLD_GRADIENTS_H
#define TANDEM_TESTS_PARALLEL_OLD_GRADIENTS_H

/* In the environment. OLD_NAN: NaN in all of it, in shards and padding too. OLD_ZERO: zeros, and
 * every product is added to them. Unset: neither, as it comes. */
#define OLD_GRADIENTS "TANDEM_TEST_OLD_GRADIENTS"
#define OLD_NAN "nan"
#define OLD_ZERO "zero"

#endif
