/* The CUDA backend is a plug-in, so that the programs need neither CUDA nor a driver to start:
 * libtandem_cuda.so, found beside the program, below ../lib, or where TANDEM_CUDA_PLUGIN says (an
 * absolute path). The order is: the driver's library (libcuda.so.1; a millisecond) first; only
 * where it is, the plug-in; then its abi; then its own probe of the driver's version and devices.
 */
#ifndef TANDEM_KERNELS_PLUGIN_H
#define TANDEM_KERNELS_PLUGIN_H

#include "kernels/kernels.h"

#define TANDEM_PLUGIN_ABI 1
#define TANDEM_PLUGIN_ENTRY "tandem_plugin_entry"

struct comm_provider; /* runtime/comm/comm_provider.h */

/* What the plug-in's entry returns; static there. abi and size come first for ever. */
struct plugin {
    uint32_t abi, size;
    const char *name; /* "CUDA 13.0" */
    /* Number of devices; -1 and words where the driver is too old or doesn't answer. */
    int (*count)(int32_t *num, struct error *err);
    int (*open)(int32_t idx, struct device **out, struct error *err);
    const struct kernels *kernels;
    const struct comm_provider *comm;
};
typedef const struct plugin *(*plugin_entry_fn)(void);

/* Loads it once a process; ERR_FAILED_PRECONDITION and words that say what is missing and what to
 * do: no driver, a driver too old, no plug-in, another abi, no device. */
int plugin_cuda(const struct plugin **out, struct error *err);

#endif
