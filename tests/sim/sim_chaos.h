/* What goes wrong, and what users do, by chance, until the profile's time is up. */
#ifndef TANDEM_TESTS_SIM_CHAOS_H
#define TANDEM_TESTS_SIM_CHAOS_H

#include "tests/sim/sim.h"

void sim_chaos_new(struct sim *s);

#endif
