/* Layouts of the shapes against one rank, in fp64 or in bf16. */
#ifndef TANDEM_TESTS_PARALLEL_SWEEP_H
#define TANDEM_TESTS_PARALLEL_SWEEP_H

#include "compare.h"
#include "layouts.h"

struct sweep;
void sweep_open(struct sweep **out, const char *precision);
void sweep_close(struct sweep *s);
/* Fails the test where the layout doesn't compute what one rank does (which is run once). */
void sweep_check(struct sweep *s, const struct layout *l);
const struct compare_worst *sweep_worst(const struct sweep *s);

#endif
