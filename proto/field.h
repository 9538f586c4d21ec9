/* The fields of any message, by protobuf-c's descriptor: find, is it set, read, write. What is
 * written comes from malloc, so protobuf_c_message_free_unpacked(message, NULL) frees it. A string
 * that equals its descriptor's default pointer is not set. */
#ifndef TANDEM_PROTO_FIELD_H
#define TANDEM_PROTO_FIELD_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An empty message with its defaults. Never NULL. */
ProtobufCMessage *field_new_message(const ProtobufCMessageDescriptor *descriptor);

/* NULL: no field of that name. */
const ProtobufCFieldDescriptor *field_find(const ProtobufCMessageDescriptor *descriptor,
                                           const char *name, size_t len);

/* Repeated: has at least one element. Member of a oneof: is the chosen one. */
bool field_is_set(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
/* Elements: of a repeated field all, else 1 or 0. */
size_t field_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
/* Where value i lies; i < field_count. What the pointer points to follows from field->type: an
 * integer, a double, a char *, a ProtobufCBinaryData, a ProtobufCMessage *. */
const void *field_at(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                     size_t i);
/* Value i of a message field. */
ProtobufCMessage *field_message(const ProtobufCMessage *message,
                                const ProtobufCFieldDescriptor *field, size_t i);

/* Frees what is there; the field is then absent. */
void field_clear(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
/* A zeroed place for a value, marked as set: a new element of a repeated field; else the field
 * itself, cleared before, and of a oneof every other member too. The caller fills it at once. */
void *field_add(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);
/* field_add for a message field, filled with an empty message, which is returned. */
ProtobufCMessage *field_add_message(ProtobufCMessage *message,
                                    const ProtobufCFieldDescriptor *field);
/* Sets an absent scalar that has a default to it. */
void field_fill_default(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field);

/* Does all of the message lie in one oneof whose members a file can tell apart (at most one scalar
 * and one message)? Such a message is flattened in text: in its place stands the member's value. */
bool field_is_choice(const ProtobufCMessageDescriptor *descriptor);
/* The scalar (message = false) or message member of a choice; NULL if it has none. */
const ProtobufCFieldDescriptor *field_choice_member(const ProtobufCMessageDescriptor *descriptor,
                                                    bool message);
/* The set member of a choice; NULL: none. */
const ProtobufCFieldDescriptor *field_chosen(const ProtobufCMessage *message);

/* An integer of any width; bool and enum too. value as int64; uint64 above INT64_MAX wraps. */
bool field_type_is_int(ProtobufCType type);
bool field_type_is_unsigned(ProtobufCType type);
int64_t field_int(ProtobufCType type, const void *at);
/* float and double. */
double field_real(ProtobufCType type, const void *at);

#endif
