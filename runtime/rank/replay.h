/* Work of compute that is the same each time, launched as one graph: done as it comes the first
 * time, so that all that is chosen or loaded on the way has been; captured the second time;
 * launched from then on. What can't be captured is done as it comes, always.
 *
 * A key stands for all that the work depends on: what is done, and where it reads and writes. */
#ifndef TANDEM_RUNTIME_RANK_REPLAY_H
#define TANDEM_RUNTIME_RANK_REPLAY_H

#include <stdint.h>

#include "base/error.h"
#include "kernels/device.h"

struct replay;

struct replay_key {
    int32_t kind, unit_begin, unit_end;
    uint64_t places;
};

/* Enqueues the work into compute, and nothing elsewhere. When it fails it may be called again. */
typedef int (*replay_fn)(void *arg, struct error *err);

/* dev has graphs (capture_begin); both are borrowed. */
int replay_new(struct replay **out, struct device *dev, struct stream *compute, struct error *err);
/* Compute has come to its end. */
void replay_free(struct replay *r);
/* r NULL: work(arg) as it is. */
int replay_run(struct replay *r, const struct replay_key *key, replay_fn work, void *arg,
               struct error *err);

/* How often work was done in each way; refused: was tried to be captured, in vain. */
struct replay_counts {
    int64_t direct, captured, launched, refused;
};
struct replay_counts replay_counted(const struct replay *r);

#endif
