/* What ranks on simulated GPUs have asked of CUDA by the beginning of each step, as a line of their
 * logs. Linked with --wrap=store_begin_step into a tandem-rank (quiet_steps_rank). */
#ifndef TANDEM_TESTS_PARALLEL_QUIET_STEPS_H
#define TANDEM_TESTS_PARALLEL_QUIET_STEPS_H

/* Step, launches, allocations, waits of the host, copies that waited. */
#define QUIET_STEPS_LINE "counted: step %d %lld %lld %lld %lld"

#endif
