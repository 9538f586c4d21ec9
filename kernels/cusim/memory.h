/* Device memory and pinned memory: which is which, and whether the host may touch it now. */
#ifndef TANDEM_KERNELS_CUSIM_MEMORY_H
#define TANDEM_KERNELS_CUSIM_MEMORY_H

#include <stddef.h>

namespace cusim
{

enum place { PLACE_PAGEABLE, PLACE_DEVICE, PLACE_PINNED };
/* Where [p, p + bytes) lies; ends the program where it runs past its allocation. */
enum place memory_place(const void *p, size_t bytes, const char *what);

/* While device work runs, protected device memory is open. */
void memory_open();
void memory_close();

/* Dynamic shared memory that a kernel may be launched with. */
size_t memory_dynamic_max(const void *kernel);

} // namespace cusim

#endif
