#include "clients/cli/collect.h"

#include <stdlib.h>

#include "base/error.h"

void collect_take(struct collect *c, ProtobufCMessage **list, size_t *num)
{
    for (size_t i = 0; i < *num; i++) {
        if (c->num == c->cap) {
            c->cap = c->cap ? 2 * c->cap : 64;
            c->items = realloc(c->items, c->cap * sizeof *c->items);
            ASSERT(c->items);
        }
        c->items[c->num++] = list[i];
    }
    *num = 0;
}

void collect_free(struct collect *c)
{
    for (size_t i = 0; i < c->num; i++) {
        protobuf_c_message_free_unpacked(c->items[i], NULL);
    }
    free(c->items);
    *c = (struct collect){0};
}
