/* A job file from disk to a message: changed by --set, its paths made absolute. Its text is kept,
 * so that what is found wrong later can be told with its place. */
#ifndef TANDEM_CLIENTS_CLI_JOB_FILE_H
#define TANDEM_CLIENTS_CLI_JOB_FILE_H

#include "base/error.h"
#include "proto/names.h"

struct job_file {
    JobSpec *spec;           /* owned */
    const char *name;        /* for messages; borrowed, as sets are */
    const char *const *sets; /* "a.b=c" */
    int num_sets;
    char *text; /* owned */
    size_t len;
};

/* file "-": standard input. Paths of the file count from its folder, those of sets from the working
 * folder. */
int job_file_read(struct job_file *out, const char *file, const char *const *sets, int num_sets,
                  struct error *err);
void job_file_free(struct job_file *f);

/* Puts the place in front of an error that begins with a field ("training.steps: ..."): file, line
 * and column, or the --set that gave it. False: it begins with none, and stays as it is. */
bool job_file_place(const struct job_file *f, struct error *err);

#endif
