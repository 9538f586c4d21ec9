/* What killed processes leave in a job's folder: unfinished checkpoints, files and folders under
 * temporary names. */
#ifndef TANDEM_RUNTIME_NODE_SWEEP_H
#define TANDEM_RUNTIME_NODE_SWEEP_H

#include "base/error.h"

/* Makes the folder of checkpoints, then removes all that. While no rank runs. */
int sweep_job(const char *job_dir, struct error *err);

#endif
