/* A job file from disk to a message: changed by --set, its paths made absolute. */
#ifndef TANDEM_CLIENTS_CLI_JOB_FILE_H
#define TANDEM_CLIENTS_CLI_JOB_FILE_H

#include "base/error.h"
#include "proto/names.h"

/* file "-": standard input. sets: "a.b=c". Paths of the file count from its folder, those of sets
 * from the working folder. *out: job_spec__free_unpacked(out, NULL). */
int job_file_read(const char *file, const char *const *sets, int num_sets, JobSpec **out,
                  struct error *err);
/* Makes the relative paths of a spec absolute, below dir (absolute). */
void job_file_resolve(JobSpec *spec, const char *dir);

#endif
