/* Names to numbers, in the order in which they were first seen. */
#ifndef TANDEM_PLAN_NAME_TABLE_H
#define TANDEM_PLAN_NAME_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* Zero-initialised = empty. */
struct name_table {
    int32_t num;
    const char **names; /* by number; borrowed */
    int32_t cap;
    int32_t *slots; /* number + 1; 0 = empty */
    uint32_t num_slots;
};

/* The name's number, a new one where it wasn't known. name is borrowed for the table's life. */
int32_t name_table_add(struct name_table *t, const char *name);
/* -1: not known. */
int32_t name_table_find(const struct name_table *t, const char *name);
void name_table_free(struct name_table *t);

#endif
