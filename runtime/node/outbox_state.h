/* The outbox's memory, for outbox.c and outbox_disk.c. Reports lie, by number, in three places, one
 * behind the other; each may be empty:
 *
 *   window   in memory, can be sent                first .. window_end - 1
 *   disk     in the journal alone                  window_end .. up to inbox
 *   inbox    in memory, not yet in the journal     .. last_seq
 *
 * Only the keeper (outbox_disk.c) moves them on. What the journal lacks is always the newest part:
 * all beyond written_seq. Without a working disk the window takes the inbox over as it is; once
 * that is written, the end of the window that was never sent becomes the disk's part. */
#ifndef TANDEM_RUNTIME_NODE_OUTBOX_STATE_H
#define TANDEM_RUNTIME_NODE_OUTBOX_STATE_H

#include <pthread.h>

#include "runtime/node/outbox.h"
#include "runtime/node/spool.h"

#define OUTBOX_RANKS_MAX 256

struct parcel {
    struct parcel *next;
    int64_t seq;
    bool urgent; /* to be synced at once */
    size_t len;
    uint8_t body[];
};

struct parcels {
    struct parcel *first, **end; /* end: NULL = empty, never used */
    size_t num_bytes;
};

struct outbox {
    struct outbox_options options; /* dir: borrowed until outbox_new returns */
    struct spool *spool;           /* keeper's; NULL = no journal */
    pthread_t keeper, syncer;
    pthread_mutex_t lock;
    pthread_cond_t filled; /* something can be sent */
    pthread_cond_t work;   /* the keeper's */
    pthread_cond_t unsynced;
    /* Under lock from here on. */
    struct parcels window, inbox;
    int64_t window_end;    /* the number that the window takes next */
    struct parcel *unsent; /* the first of the window that this stream hasn't carried */
    struct parcel *latest[OUTBOX_RANKS_MAX]; /* progress of each rank, not yet sent */
    struct parcel *comm_id;                  /* not yet heard; NULL = none */
    bool comm_id_unsent;                     /* on this stream */
    int64_t last_seq, sent_seq, acked_seq;
    int64_t written_seq, dropped_seq;
    bool failing; /* the journal takes nothing; true for ever without one */
    int64_t retry_ms;
    int num_unread;    /* times in a row that the journal could not be read back */
    int64_t reread_ms; /* then: not before */
    bool sync_due, sync_urgent;
    bool told_full; /* the owner has heard so, and waits for room */
    bool broken;
    char why[512];
    bool interrupted, stopping, stopped;
};

struct parcel *outbox_new_parcel(int64_t seq, const void *body, size_t len);
void outbox_push(struct parcels *list, struct parcel *p);
struct parcel *outbox_pop(struct parcels *list);

/* Both while the lock is held. */
void outbox_wake_owner(struct outbox *o);
/* Whoever has made room calls it: an owner that was told of none doesn't ask again by itself. */
void outbox_tell_room(struct outbox *o);

int outbox_start_disk(struct outbox *o, struct error *err);
/* Writes what isn't written, syncs, ends both threads. */
void outbox_stop_disk(struct outbox *o);

#endif
