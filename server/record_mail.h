/* The owner's mail in a record. Answers of the launch and probe threads are told by the order in
 * which they were asked. */
#ifndef TANDEM_SERVER_RECORD_MAIL_H
#define TANDEM_SERVER_RECORD_MAIL_H

#include "server/controller.h"
#include "server/record_format.h"

/* What was asked of other threads and is not answered yet. Zero = nothing. */
struct record_asked {
    struct buf mail; /* struct record_pending */
    int64_t num;     /* ever */
};
struct record_pending {
    const struct mail *mail; /* whose address comes back with the answer */
    int64_t number;          /* from 1 */
    bool is_probe;
};

void record_asked_note(struct record_asked *a, const struct out *o);
/* False: it was not asked for. It is forgotten. */
bool record_asked_take(struct record_asked *a, const struct mail *m, struct record_pending *out);

/* False: it is none of those that are recorded. */
bool record_mail_put(struct buf *items, struct record_asked *a, const struct mail *m);
/* Is it one of the things that the controller does to jobs, so that it is in the record? */
bool record_is_told(const struct out *o);

/* Fill the answer in, as it was recorded behind the tag and the number. */
void record_mail_take_launch(struct record_reader *r, struct launch_mail *m);
void record_mail_take_probe(struct record_reader *r, struct probe_mail *m);

#endif
