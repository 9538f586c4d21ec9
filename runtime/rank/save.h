/* Checkpoints of a running gang. Every rank writes its own bytes; when all have, each makes its own
 * file's digest; when all have, rank 0 commits and says so. All of it happens in order on a stream
 * of its own; with async the saver first copies what this rank owns, and training goes on while it
 * writes. The copy has owned elements x element size x (3 with moments, 1 without) bytes.
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
    struct device *dev;
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

/* Saves the state as it is now. Waits for the save before; without async, for this one too. */
int saver_start(struct saver *s, const struct ckpt_meta *meta, struct error *err);
/* Waits for the save under way. -1: the communicator failed, or `must_hold` and the last save was
 * not committed. */
int saver_wait(struct saver *s, bool must_hold, struct error *err);
/* Folder of the last checkpoint that this rank committed (rank 0 does); "" = none. After
 * saver_wait. */
const char *saver_newest(const struct saver *s);

#endif
