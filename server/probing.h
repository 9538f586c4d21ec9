/* The probe thread: asks tandem-probe about model folders and data files, under a deadline. An
 * answer is kept as long as the files that it came from stay the same (device, inode, mtime,
 * size). */
#ifndef TANDEM_SERVER_PROBING_H
#define TANDEM_SERVER_PROBING_H

#include "proto/names.h"
#include "server/mail.h"

#define PROBE_DEADLINE_MS 60000

struct probe_mail {
    struct mail mail;      /* first; its call and message are the submitter's, if any */
    ProbeRequest *request; /* owned */
    ProbeReply *reply;     /* owned; NULL: error says why */
    struct error error;
    int (*then)(void *controller, struct mail *m, struct error *err);
};

/* request: owned by the mail. */
struct probe_mail *probe_mail_new(ProbeRequest *request, struct call *c,
                                  const ProtobufCMessage *message,
                                  int (*then)(void *, struct mail *, struct error *));

struct probing;

/* bin_dir: where tandem-probe is; back: the controller's mailbox. */
int probing_new(struct probing **out, const char *bin_dir, struct mailbox *back, struct error *err);
void probing_post(struct probing *p, struct probe_mail *m);
void probing_free(struct probing *p);

#endif
