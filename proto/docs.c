#include "proto/docs.h"

#include <stddef.h>
#include <string.h>

struct docs_entry {
    const char *name, *text;
};
/* Made by proto/docs.py. */
extern const struct docs_entry docs_table[];

const char *docs_find(const char *name)
{
    for (const struct docs_entry *e = docs_table; e->name; e++) {
        if (strcmp(e->name, name) == 0) {
            return e->text;
        }
    }
    return NULL;
}
