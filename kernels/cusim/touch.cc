/* Memory of the program that the simulator touches in a kernel's name: these lines are instrumented
 * as the kernel is, so that a race or an overrun shows. */
#include "kernels/cusim/engine.h"

namespace cusim
{

struct alignas(16) words {
    uint64_t w[2];
};

void copy_land(void *dst, const void *src, bool full)
{
    struct words value = {};
    if (full) {
        value = *(const struct words *)src;
    }
    *(struct words *)dst = value;
}

} // namespace cusim
