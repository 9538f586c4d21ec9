/* Fabrics for tests, from the text of a cluster file. */
#ifndef TANDEM_TESTS_UNIT_FABRIC_CASE_H
#define TANDEM_TESTS_UNIT_FABRIC_CASE_H

#include "plan/fabric.h"

/* Fails the test where the text isn't a good cluster. */
struct fabric *fabric_case(const char *text);
/* num_nodes nodes "n0".. with 8 devices each, nodes_per_leaf nodes under a leaf, leaves_per_spine
 * leaves under a spine. */
struct fabric *fabric_case_tree(int num_nodes, int nodes_per_leaf, int leaves_per_spine,
                                const char *type);

#endif
