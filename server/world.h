/* The world as the controller sees it: everything that its state depends on or that it does to
 * others goes through this one table. tandemd fills it with clocks, disks and threads
 * (world_real.h); the simulator with fakes.
 *
 * All functions are called on the owner thread and return at once. */
#ifndef TANDEM_SERVER_WORLD_H
#define TANDEM_SERVER_WORLD_H

#include "server/auth.h"
#include "server/mail.h"

/* What a batch says to others once it is committed. */
enum out_kind {
    OUT_REPLY,   /* message: the answer of a call */
    OUT_SEND,    /* message, down a stream */
    OUT_END,     /* a call or stream ends with error */
    OUT_LAUNCH,  /* mail: a struct launch_mail */
    OUT_FEED,    /* mail: a struct feed_mail */
    OUT_TICKET,  /* mail: a struct launch_mail whose ticket_fd gets its ticket */
    OUT_LEASE,   /* the stream's lease is renewed from now on */
    OUT_UNLEASE, /* ... and no more */
    OUT_PROBE,   /* mail: a struct probe_mail */
    OUT_THEN,    /* mail: run without an owner, on this thread */
};

struct out {
    enum out_kind kind;
    struct call *call;         /* a reference */
    ProtobufCMessage *message; /* owned */
    struct mail *mail;         /* owned; TICKET: borrowed */
    struct error *error;       /* owned */
};

struct world {
    void *ctx;
    int64_t (*mono_ms)(void *ctx); /* durations and deadlines */
    int64_t (*wall_us)(void *ctx); /* what people read */
    int64_t (*busy_ms)(void *ctx); /* what this thread has had of the processor: costs */
    /* A new secret of an attempt. */
    int (*make_token)(void *ctx, char token[AUTH_TOKEN_SIZE], uint8_t sha256[HASH_BYTES],
                      struct error *err);
    /* That secret opens Attach from now on. */
    void (*add_token)(void *ctx, int64_t job, int32_t attempt, const uint8_t sha256[HASH_BYTES]);
    /* Has a caller that was let in earlier still the right? NULL = always. */
    int (*still_allowed)(void *ctx, const struct caller *caller, enum method_access access,
                         struct error *err);
    /* A caller was refused for want of rights: for the audit. NULL = nobody wants to know. */
    void (*refused)(void *ctx, const struct caller *caller);
    /* Is there such a file? For checkpoints of jobs. */
    bool (*exists)(void *ctx, const char *path);
    /* Is the disk full? Then why says so, and nothing new begins. NULL = never. */
    bool (*no_room)(void *ctx, char *why, size_t size);
    /* Carries out what is committed. What it takes over it sets to NULL in *o. */
    void (*deliver)(void *ctx, struct out *o);
    /* A step begins, with that mail (and the controller's own); a mail of it is run (NULL: none any
     * more); the step has ended. All NULL = nobody wants to know. */
    void (*begins)(void *ctx, const struct mailbox_node *chain);
    void (*runs)(void *ctx, const struct mail *m);
    void (*ends)(void *ctx, bool committed);
};

#endif
