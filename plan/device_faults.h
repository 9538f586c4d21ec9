/* What the driver tells of a GPU's health: which of it takes the device out of use, and words. */
#ifndef TANDEM_PLAN_DEVICE_FAULTS_H
#define TANDEM_PLAN_DEVICE_FAULTS_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/names.h"

/* The device isn't to be used until someone has looked at it: memory errors that couldn't be
 * corrected, rows that couldn't be replaced, a lost device, XID 48, 63, 64, 74, 79, 94, 95. */
bool device_faults_is_hard(const DeviceEvent *e);

/* "XID 79: GPU has fallen off the bus", "3 memory errors that could not be corrected". */
void device_faults_words(const DeviceEvent *e, char *out, size_t size);

#endif
