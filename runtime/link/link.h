/* What a rank says and hears: RankUp goes up, RankDown comes down. Behind it a socket to
 * tandem-node (4-byte little-endian length, then the message), or a pair of functions in tests.
 * Sending is safe on every thread of the rank. */
#ifndef TANDEM_RUNTIME_LINK_LINK_H
#define TANDEM_RUNTIME_LINK_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "proto/names.h"

/* A plan is at most 1 MiB; a message at most this. */
#define LINK_MESSAGE_MAX (4u << 20)

struct link;

/* Over a connected stream socket (borrowed). */
int link_new(struct link **out, int fd, struct error *err);

/* For tests: sent messages go to on_up (on the sender's thread; the message is borrowed). Commands
 * are put in by link_inject (copied). */
typedef void (*link_up_fn)(void *arg, const RankUp *message);
int link_new_local(struct link **out, link_up_fn on_up, void *arg);
int link_inject(struct link *l, const RankDown *message);

void link_free(struct link *l);

int link_send(struct link *l, const RankUp *message, struct error *err);
/* The next command. *out is freed with rank_down__free_unpacked; NULL = none within timeout_ms
 * (0 = don't wait). -1: the other side is gone, or sent nonsense. */
int link_poll(struct link *l, int64_t timeout_ms, RankDown **out, struct error *err);

/* For the main of a rank, first of all: the kernel kills this process when the one at the other end
 * of fd (a socketpair that the parent made) dies. -1: it is dead already, or isn't the parent.
 * The parent's thread that started this process must live as long as the parent. */
int link_die_with_parent(int fd, struct error *err);

/* Appends a frame: length, then the message. -1: over LINK_MESSAGE_MAX. */
int link_frame(struct buf *out, const ProtobufCMessage *message, struct error *err);

/* The other end, in tandem-node: frames of a stream. Appends bytes as they come; *out = the next
 * whole frame's body (borrowed from the decoder until the next call), NULL = not yet. -1: a frame
 * over LINK_MESSAGE_MAX. */
struct link_decoder;
int link_decoder_new(struct link_decoder **out);
void link_decoder_free(struct link_decoder *d);
int link_decoder_feed(struct link_decoder *d, const void *data, size_t len, struct error *err);
int link_decoder_next(struct link_decoder *d, const uint8_t **body, size_t *len,
                      struct error *err);

#endif
