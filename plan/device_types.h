/* Figures of the device types that people have: memory, peaks, links. A cluster file may describe
 * others, or say better. */
#ifndef TANDEM_PLAN_DEVICE_TYPES_H
#define TANDEM_PLAN_DEVICE_TYPES_H

#include <stdbool.h>

#include "base/buf.h"
#include "proto/names.h"

/* Sets what is absent in t from the table, by t->name. False: a type that isn't in the table; the
 * figures are set to 0, not known. */
bool device_types_fill(DeviceType *t);
bool device_types_known(const char *name);
/* The known type that a card's name means, all of whose words stand in it (the one with most
 * words); NULL: none. name: in small letters, its words joined by "-": "nvidia-h100-pcie". */
const char *device_types_match(const char *name);
/* Ten times the compute capability of a card of that name: also of those from before bf16, which
 * have no figures here ("tesla-v100-sxm2-16gb", "geforce-rtx-2080-ti"). 0 = not known. */
int32_t device_types_capability(const char *name);
/* From here on (8.0, A100) cards compute in bf16. */
#define DEVICE_TYPES_BF16 80
/* NULL behind the last. */
extern const char *const device_types_names[];

#endif
