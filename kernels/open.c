#include "kernels/kernels.h"

#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/host/device.h"
#include "kernels/host/level.h"
#include "kernels/plugin.h"

/* The variants of the reference that the build makes. All give the same bits: wider registers
 * change no rounding, and nothing is contracted. */
extern const struct loops loops_ref_f32_base, loops_ref_f64_base, loops_ref_bf16_base;
#if defined(__x86_64__)
extern const struct loops loops_ref_f32_v3, loops_ref_f64_v3, loops_ref_bf16_v3;
extern const struct loops loops_ref_f32_v4, loops_ref_f64_v4, loops_ref_bf16_v4;
#endif

static const struct loops *const ref_loops[][HOST_DTYPES] = {
    [HOST_BASELINE] = {&loops_ref_f32_base, &loops_ref_f64_base, &loops_ref_bf16_base},
#if defined(__x86_64__)
    [HOST_AVX2] = {&loops_ref_f32_v3, &loops_ref_f64_v3, &loops_ref_bf16_v3},
    [HOST_AVX512] = {&loops_ref_f32_v4, &loops_ref_f64_v4, &loops_ref_bf16_v4},
#endif
};

int device_open_ref(struct device **out, struct error *err)
{
    return host_device_open(out, "ref", 1, ref_loops[host_level()], err);
}

int device_open_cpu(struct device **out, int num_threads, struct error *err)
{
    const struct loops *loops[HOST_DTYPES];
    for (int t = 0; t < HOST_DTYPES; t++) {
        loops[t] = cpu_loops((enum dtype)t);
    }
    return host_device_open(out, "cpu", num_threads, loops, err);
}

const struct kernels *kernels_ref(void)
{
    return &host_kernels_ref;
}

const struct kernels *kernels_cpu(void)
{
    return &host_kernels_cpu;
}

static int open_cuda(int32_t device, struct device **dev, const struct kernels **k,
                     struct error *err)
{
    const struct plugin *p;
    if (plugin_cuda(&p, err) != 0 || p->open(device, dev, err) != 0) {
        return error_wrap(err, "backend cuda");
    }
    *k = p->kernels;
    return 0;
}

int kernels_open(const struct kernels_options *o, struct device **dev, const struct kernels **k,
                 struct error *err)
{
    bool is_ref = strcmp(o->backend, "ref") == 0;
    if (strcmp(o->backend, "cuda") == 0) {
        return open_cuda(o->device, dev, k, err);
    }
    if (!is_ref && strcmp(o->backend, "cpu") != 0) {
        return error_set(err, ERR_INVALID_ARGUMENT, "backend %s: not one of ref, cpu, cuda",
                         o->backend);
    }
    int rc = is_ref ? device_open_ref(dev, err) : device_open_cpu(dev, o->num_threads, err);
    if (rc == 0) {
        *k = is_ref ? kernels_ref() : kernels_cpu();
    }
    return rc;
}
