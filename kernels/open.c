#include "kernels/kernels.h"

#include <string.h>

#include "kernels/host/device.h"

/* The variants of the loops that the build makes. */
extern const struct loops loops_ref_f32;
extern const struct loops loops_ref_f64;

int device_open_ref(struct device **out, struct error *err)
{
    return host_device_open(out, "ref", 1, &loops_ref_f32, &loops_ref_f64, err);
}

const struct kernels *kernels_ref(void)
{
    return &host_kernels_ref;
}

int kernels_open(const char *backend, int num_threads, struct device **dev,
                 const struct kernels **k, struct error *err)
{
    (void)num_threads;
    if (strcmp(backend, "ref") == 0) {
        if (device_open_ref(dev, err) != 0) {
            return -1;
        }
        *k = kernels_ref();
        return 0;
    }
    return error_set(err, ERR_INVALID_ARGUMENT, "backend %s: not known here (ref)", backend);
}
