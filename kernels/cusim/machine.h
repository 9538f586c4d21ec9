/* The simulated machine: devices with streams, and work that runs in the streams' order and the
 * schedule's. The fakes of cudart, cublasLt and nccl are made of it.
 *
 * A piece of work is a function and a copy of its arguments. It runs under the machine's lock, on
 * the thread of some host call, and to ThreadSanitizer on a thread of its stream. */
#ifndef TANDEM_KERNELS_CUSIM_MACHINE_H
#define TANDEM_KERNELS_CUSIM_MACHINE_H

#include "kernels/cusim/control.h"
#include "kernels/cusim/engine.h"

namespace cusim
{

/* Held while anything of the machine is looked at. Recursive. */
void machine_lock();
void machine_unlock();
struct machine_guard {
    machine_guard()
    {
        machine_lock();
    }
    ~machine_guard()
    {
        machine_unlock();
    }
};

/* WORK_WAITS: it needs something from outside the device and wants to be asked again. */
enum progress { WORK_DONE, WORK_WAITS };
typedef enum progress (*work_fn)(const void *args);

/* Copies the arguments. `what`: static, for words of failures. */
void machine_enqueue(cudaStream_t s, const char *what, work_fn fn, const void *args, size_t bytes);
void machine_launch(struct launch l, const void *kernel, cudaStream_t s, const void *args,
                    size_t bytes);
/* The end of the program where it is neither NULL nor memory that a kernel may use. */
void machine_check_pointer(const void *p, const char *kernel, int argument);
void machine_check_range(const void *p, size_t bytes, const char *what);

/* Lets work run until done(arg): waits for others, too, but ends the program where nothing can go
 * on. */
void machine_drive(cudaStream_t preferred, bool (*done)(void *arg), void *arg);
/* What a device does on its own while the host looks: a little. */
void machine_nudge();

/* Errors of the calling thread. */
cudaError_t machine_error(cudaError_t e);
int machine_device();
double machine_now_s();
extern struct cusim_counts counts;

} // namespace cusim

#endif
