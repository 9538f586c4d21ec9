/* Deep copies of messages, so that a plan shares nothing with what it was made from. */
#ifndef TANDEM_PLAN_CLONE_H
#define TANDEM_PLAN_CLONE_H

#include <protobuf-c/protobuf-c.h>

/* The same message again, on the default allocator. */
void *clone_message(const ProtobufCMessage *message);

#endif
