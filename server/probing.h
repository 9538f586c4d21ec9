/* The probe threads: ask tandem-probe about model folders and data files, under a deadline. A
 * tenant's requests go through one of them, in order; another tenant's mostly through another, and
 * tenants that share one take turns. What one tenant may have waiting is bounded, and what nobody
 * waits for any more is passed over.
 *
 * tandemd itself touches no path that a user has named: a file server that hangs would hang it, and
 * its own rights may be wider than the tenant's. So an answer that is kept is confirmed by the
 * probe, which opens the files that it came from and compares device, inode, size and times; that
 * counts for every request that was there before the probe started, and for no later one. */
#ifndef TANDEM_SERVER_PROBING_H
#define TANDEM_SERVER_PROBING_H

#include "proto/names.h"
#include "server/mail.h"
#include "server/store/rows.h"

struct topology;

struct probe_mail {
    struct mail mail;      /* first; its call and message are the submitter's, if any */
    ProbeRequest *request; /* owned */
    ProbeReply *reply;     /* owned; NULL: error says why */
    struct error error;
    int64_t posted_ns;               /* monotonic */
    uint8_t spec_sha256[HASH_BYTES]; /* the submitter's own */
    int (*then)(void *controller, struct mail *m, struct error *err);
    /* On the probe thread, where there is a reply: what takes long and needs nothing that the owner
     * changes. -1: m->error says why, and the reply is dropped. May be NULL. */
    int (*work)(struct probe_mail *m);
    const struct topology *topology; /* for work */
    int32_t num_gpus_gone;           /* of it, when the mail was made */
    ProtobufCMessage *result;        /* of work; owned */
};

/* request: owned by the mail. */
struct probe_mail *probe_mail_new(ProbeRequest *request, struct call *c,
                                  const ProtobufCMessage *message,
                                  int (*then)(void *, struct mail *, struct error *));

struct probing;

/* bin_dir: where tandem-probe is; back: the controller's mailbox. */
int probing_new(struct probing **out, const char *bin_dir, struct mailbox *back, struct error *err);
void probing_post(struct probing *p, struct probe_mail *m);
/* Gives up what is under way. */
void probing_free(struct probing *p);

#endif
