/* Messages of many replies, one after the other. */
#ifndef TANDEM_CLIENTS_CLI_COLLECT_H
#define TANDEM_CLIENTS_CLI_COLLECT_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

enum { COLLECT_MAX = 100000 };

struct collect {
    ProtobufCMessage **items; /* owned */
    size_t num, cap;
};

/* Takes the *num messages of a reply's list over and leaves the list empty. */
void collect_take(struct collect *c, ProtobufCMessage **list, size_t *num);
void collect_free(struct collect *c);

#endif
