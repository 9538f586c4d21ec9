/* JOB[@STEP] as a model. */
#ifndef TANDEM_CLIENTS_CLI_GENERATE_H
#define TANDEM_CLIENTS_CLI_GENERATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "shakespeare@400" into job and step; step -1: none. False: it is neither. */
bool generate_split_ref(const char *text, char *job, size_t size, int64_t *step);

#endif
