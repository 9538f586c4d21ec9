/* A job's states and the one table of moves between them. */
#ifndef TANDEM_SERVER_JOB_H
#define TANDEM_SERVER_JOB_H

#include <stdbool.h>

#include "base/error.h"
#include "server/store/rows.h"

/* SUCCEEDED, FAILED, CANCELLED. */
bool job_state_is_end(JobState state);
/* "RUNNING". */
const char *job_state_name(JobState state);
/* Is the move in the table? target: what a STOPPING job is to become, else 0. */
bool job_may_move(JobState from, JobState to);

/* What a step takes: the mean of the last ten seconds or so, and of the last step at the least.
 * On a busy host single steps of a small job take a hundred times as long as others. */
struct job_pace {
    double step_ms;   /* 0 = not known */
    double num_steps; /* in the mean; older ones count less */
};
void job_pace_add(struct job_pace *p, double took_ms);

/* The row as a message that the caller frees; times of 0 and NaN stay absent. data_dir: where the
 * job's folder is. spec: NULL, or copied for its tags, and as a whole with with_spec. */
Job *job_message(const struct job_row *row, const char *data_dir, const JobSpec *spec,
                 bool with_spec);

/* devices: "alpha:0-3,beta:1", as they are stored; one name for each run of them. */
void job_set_devices(Job *j, const char *devices);

/* DATA_DIR/jobs/ID. False if it doesn't fit. */
bool job_dir(char *out, size_t size, const char *data_dir, int64_t id);

#endif
