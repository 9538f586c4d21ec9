/* Checkpoints of a running gang. Every rank writes its own bytes; when all have, each makes its own
 * file's digest; when all have, rank 0 commits and says so. All of it happens in order on a stream
 * of the host.
 *
 * With async, and always where the state lies in an accelerator's memory, that begins with a copy
 * of what this rank owns to the host, beside training, which may change the state again when
 * saver_let_change says so. The copy has owned elements x element size x (3 with moments, 1
 * without) bytes. What is filled into an accelerator's memory comes the same way.
 *
 * A disk that is full or broken costs the checkpoint, not the run: the save is marked failed and
 * said in the log. A communicator that fails costs the run. */
#ifndef TANDEM_RUNTIME_RANK_SAVE_H
#define TANDEM_RUNTIME_RANK_SAVE_H

#include "runtime/ckpt/ckpt.h"
#include "runtime/comm/comm.h"
#include "runtime/parallel/arenas.h"
#include "runtime/rank/report.h"

struct saver;

struct saver_options {
    struct device *dev;  /* where the state lies */
    struct device *host; /* of host memory; maybe the same */
    struct stream *compute;
    struct arenas *arenas;     /* for the copy */
    struct comm *comm;         /* of all ranks, for the saver alone; NULL with one rank */
    struct report *report;     /* borrowed */
    const char *job_dir;       /* borrowed */
    const ModelConfig *config; /* borrowed; left beside the checkpoints as JOB/config.json */
    struct ckpt_state live;    /* the buffers that training changes, and what of them is owned;
                                * all that it points to is borrowed */
    bool async;
};

int saver_new(struct saver **out, const struct saver_options *options, struct error *err);
/* Waits for a save under way. */
void saver_free(struct saver *s);

/* Saves the state as compute has it now. Waits for the save before; without async, for this one
 * too.
 */
int saver_start(struct saver *s, const struct ckpt_meta *meta, struct error *err);
/* Before compute is given work that changes the state: makes it wait for a copy under way. */
int saver_let_change(struct saver *s, struct error *err);
/* Waits for the save under way. -1: the communicator failed, or `must_hold` and the last save was
 * not committed. */
int saver_wait(struct saver *s, bool must_hold, struct error *err);
/* Folder of the last checkpoint that this rank committed (rank 0 does); "" = none. After
 * saver_wait. */
const char *saver_newest(const struct saver *s);

/* What is filled at the start: the live state itself or, where the host can't reach into it, a copy
 * of what is owned, which saver_put_back brings to its place; moments: not the weights alone. */
const struct ckpt_state *saver_image(const struct saver *s);
int saver_put_back(struct saver *s, bool moments, struct error *err);

#endif
