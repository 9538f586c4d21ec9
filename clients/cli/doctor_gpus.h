/* What a rank on this host would find of GPUs, in a line. */
#ifndef TANDEM_CLIENTS_CLI_DOCTOR_GPUS_H
#define TANDEM_CLIENTS_CLI_DOCTOR_GPUS_H

#include <stdbool.h>
#include <stddef.h>

/* How many there are, or why none can be used. true: nothing is wrong, which no driver isn't. */
bool doctor_gpus(char *words, size_t size);

#endif
