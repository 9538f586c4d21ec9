#include "kernels/cusim/memory.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/cusim/control.h"
#include "kernels/cusim/machine.h"

#ifdef CUSIM_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace cusim
{

#define DEVICE_BYTES ((size_t)8 << 30)
#define ARENA_BYTES ((size_t)64 << 30)
#define PAGE_BYTES ((size_t)4096)
#define ALIGN_BYTES ((size_t)256)
#define MAX_BLOCKS 4096

struct allocation {
    char *begin;
    size_t bytes;
    enum place place;
    int device;
};

static struct allocation allocations[MAX_BLOCKS];
static int num_allocations;
static bool is_protected, is_open;
static char *arena;
static size_t arena_used;
/* Of all memory in the arena: a register of each thread says whether it may go there. -1: this
 * processor has none, and pages are opened and closed one by one. */
static int key = -1;

static struct allocation *find(const void *p)
{
    for (int i = 0; i < num_allocations; i++) {
        struct allocation *a = &allocations[i];
        if ((const char *)p >= a->begin && (const char *)p < a->begin + a->bytes) {
            return a;
        }
    }
    return nullptr;
}

enum place memory_place(const void *p, size_t bytes, const char *what)
{
    const struct allocation *a = find(p);
    if (a && (const char *)p + bytes > a->begin + a->bytes) {
        fail("%s: %zu bytes at %p run past their allocation of %zu bytes at %p", what, bytes, p,
             a->bytes, (void *)a->begin);
    }
    return a ? a->place : PLACE_PAGEABLE;
}

void machine_check_range(const void *p, size_t bytes, const char *what)
{
    struct machine_guard guard;
    if (bytes > 0 && memory_place(p, bytes, what) == PLACE_PAGEABLE) {
        fail("%s: %p isn't device memory", what, p);
    }
}

void machine_check_pointer(const void *p, const char *kernel, int argument)
{
    struct machine_guard guard;
    if (p && memory_place(p, 1, kernel) == PLACE_PAGEABLE) {
        fail("kernel %s: argument %d (%p) is a host pointer", kernel, argument, p);
    }
}

/* ---- protection ---- */

static void touched(int, siginfo_t *info, void *)
{
    char text[200];
    char *at = (char *)info->si_addr;
    bool ours = arena && at >= arena && at < arena + ARENA_BYTES;
    int length = snprintf(text, sizeof text,
                          ours && !is_open ? "cusim: the host touched device memory at %p\n"
                          : ours ? "cusim: device work touched %p, which is no allocation\n"
                                 : "cusim: segmentation fault at %p\n",
                          info->si_addr);
    if (write(STDERR_FILENO, text, (size_t)length) < 0) {
        _exit(1);
    }
    abort();
}

static void init_arena()
{
    if (!is_protected && getenv("CUSIM_PROTECT")) {
        is_protected = true;
    }
    if (!is_protected || arena) {
        return;
    }
    arena = (char *)mmap(nullptr, ARENA_BYTES, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) {
        fail("no address space to protect device memory");
    }
    key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
    struct sigaction act = {};
    act.sa_sigaction = touched;
    act.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &act, nullptr);
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
}

static void set_open(bool open)
{
    if (!arena || open == is_open) {
        return;
    }
    is_open = open;
    if (key >= 0) {
        pkey_set(key, open ? 0 : PKEY_DISABLE_ACCESS);
        return;
    }
    for (int i = 0; i < num_allocations; i++) {
        const struct allocation *a = &allocations[i];
        if (a->begin >= arena && a->begin < arena + ARENA_BYTES) {
            mprotect(a->begin, whole_pages(a->bytes), open ? PROT_READ | PROT_WRITE : PROT_NONE);
        }
    }
}

void memory_open()
{
    set_open(true);
}

void memory_close()
{
    set_open(false);
}

/* Pages of its own, with one behind that is never open. */
static char *arena_get(size_t bytes)
{
    size_t whole = whole_pages(bytes);
    if (arena_used + whole + PAGE_BYTES > ARENA_BYTES) {
        fail("more than %zu bytes of protected memory", ARENA_BYTES);
    }
    char *mem = arena + arena_used;
    arena_used += whole + PAGE_BYTES;
    mprotect(mem, whole, PROT_READ | PROT_WRITE);
    memset(mem, 0xFF, bytes);
#ifdef CUSIM_ASAN
    __asan_poison_memory_region(mem + bytes, whole - bytes);
#endif
    if (key < 0) {
        mprotect(mem, whole, PROT_NONE);
    } else {
        pkey_mprotect(mem, whole, PROT_READ | PROT_WRITE, key);
    }
    return mem;
}

/* ---- allocations ---- */

static void *take(size_t bytes, enum place place)
{
    init_arena();
    if (num_allocations == MAX_BLOCKS) {
        fail("more than %d allocations", MAX_BLOCKS);
    }
    char *mem;
    if (place == PLACE_DEVICE && arena) {
        mem = arena_get(bytes);
    } else if (posix_memalign((void **)&mem, ALIGN_BYTES, bytes) != 0) {
        return nullptr;
    } else {
        memset(mem, 0xFF, bytes);
    }
    allocations[num_allocations++] = {mem, bytes, place, machine_device()};
    counts.allocations++;
    return mem;
}

static bool give_back(void *p, enum place place)
{
    struct allocation *a = find(p);
    if (!a || a->begin != p || a->place != place) {
        return false;
    }
    if (place == PLACE_DEVICE) {
        counts.bytes_now -= a->bytes;
    }
    bool in_arena = arena && a->begin >= arena && a->begin < arena + ARENA_BYTES;
    if (in_arena) {
        mprotect(a->begin, whole_pages(a->bytes), PROT_NONE);
    } else {
        memset(a->begin, 0xFF, a->bytes);
        free(a->begin);
    }
    *a = allocations[--num_allocations];
    return true;
}

} // namespace cusim

using namespace cusim;

void cusim_protect(void)
{
    struct machine_guard guard;
    is_protected = true;
}

extern "C" {

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    struct machine_guard guard;
    *out = nullptr;
    if (bytes == 0) {
        return cudaSuccess;
    }
    if (bytes > DEVICE_BYTES || counts.bytes_now + bytes > DEVICE_BYTES) {
        return machine_error(cudaErrorMemoryAllocation);
    }
    *out = take(bytes, PLACE_DEVICE);
    if (!*out) {
        return machine_error(cudaErrorMemoryAllocation);
    }
    counts.bytes_now += bytes;
    counts.bytes_peak = counts.bytes_now > counts.bytes_peak ? counts.bytes_now : counts.bytes_peak;
    return cudaSuccess;
}

/* Waits for the device, as CUDA's does. */
cudaError_t cudaFree(void *p)
{
    struct machine_guard guard;
    cudaDeviceSynchronize();
    return !p || give_back(p, PLACE_DEVICE) ? cudaSuccess : machine_error(cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    struct machine_guard guard;
    *out = bytes ? take(bytes, PLACE_PINNED) : nullptr;
    return bytes && !*out ? machine_error(cudaErrorMemoryAllocation) : cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return cudaHostAlloc(out, bytes, 0);
}

cudaError_t cudaFreeHost(void *p)
{
    struct machine_guard guard;
    cudaDeviceSynchronize();
    return !p || give_back(p, PLACE_PINNED) ? cudaSuccess : machine_error(cudaErrorInvalidValue);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    struct machine_guard guard;
    *total_bytes = DEVICE_BYTES;
    *free_bytes = DEVICE_BYTES - counts.bytes_now;
    return cudaSuccess;
}

} // extern "C"
