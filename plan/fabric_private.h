/* Between the files of a fabric: its memory, and the steps in which it is built. */
#ifndef TANDEM_PLAN_FABRIC_PRIVATE_H
#define TANDEM_PLAN_FABRIC_PRIVATE_H

#include "base/arena.h"
#include "plan/fabric.h"
#include "plan/name_table.h"

struct fabric_inside {
    struct arena arena;           /* all arrays of the fabric */
    ClusterSpec *spec;            /* owned */
    struct name_table node_names; /* by the node's place in the file */
};

/* Zeroed memory of the fabric's; num may be 0. */
void *fabric_alloc(struct fabric *f, int32_t num, size_t size);

/* Fills types and links in from spec. */
int fabric_build_types(struct fabric *f, struct error *err);
/* Numbers nodes, domains, devices and switches. After types. */
int fabric_build_tree(struct fabric *f, struct error *err);

#endif
