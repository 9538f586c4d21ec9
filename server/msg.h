/* Building messages in memory that x__free_unpacked can free. Memory that runs out aborts: every
 * message here is bounded. */
#ifndef TANDEM_SERVER_MSG_H
#define TANDEM_SERVER_MSG_H

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

/* Sets an optional scalar. */
#define MSG_SET(m, field, value) ((m)->has_##field = 1, (m)->field = (value))

/* An empty message of the type. */
void *msg_new(const ProtobufCMessageDescriptor *descriptor);
/* Copies text into a string field; empty text leaves it absent. */
void msg_text(char **field, const char *text);
void msg_printf(char **field, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends to a repeated field of messages or strings; item is owned by the message from now on. */
void msg_push(void *list, size_t *num, void *item);
/* Frees any unpacked message; NULL is fine. */
void msg_free(void *message);

#endif
