#include "kernels/cusim/fiber.h"

#include <stdint.h>
#include <sys/mman.h>

#include "kernels/cusim/engine.h"
#include "kernels/cusim/tsan.h"

#ifdef CUSIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef __x86_64__
#error "the stack switch is written for x86-64"
#endif

/* What a function call must keep lies on the stack that is left, its pointer in *save. */
extern "C" void cusim_swap(void **save, void *load);
asm(".text\n"
    ".globl cusim_swap\n"
    ".type cusim_swap,@function\n"
    "cusim_swap:\n"
    "pushq %rbp\n"
    "pushq %rbx\n"
    "pushq %r12\n"
    "pushq %r13\n"
    "pushq %r14\n"
    "pushq %r15\n"
    "movq %rsp, (%rdi)\n"
    "movq %rsi, %rsp\n"
    "popq %r15\n"
    "popq %r14\n"
    "popq %r13\n"
    "popq %r12\n"
    "popq %rbx\n"
    "popq %rbp\n"
    "ret\n"
    ".size cusim_swap, .-cusim_swap\n");

namespace cusim
{

#define STACK_BYTES ((size_t)256 << 10)
#define PAGE_BYTES ((size_t)4096)
#define NUM_SAVED 6

void fiber_init(struct fiber *f)
{
    void *stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED || mprotect(stack, PAGE_BYTES, PROT_NONE) != 0) {
        fail("no memory for the stacks of threads");
    }
    *f = {(char *)stack, STACK_BYTES, nullptr, tsan_fiber_new(), nullptr};
}

void fiber_drop(struct fiber *f)
{
    tsan_fiber_free(f->tsan);
    munmap(f->stack, f->stack_bytes);
}

void fiber_begin(struct fiber *f, void (*entry)())
{
#ifdef CUSIM_ASAN
    __asan_unpoison_memory_region(f->stack + PAGE_BYTES, f->stack_bytes - PAGE_BYTES);
#endif
    /* At entry the stack is as behind a call: a return address that nobody returns to. */
    void **sp = (void **)((uintptr_t)(f->stack + f->stack_bytes) & ~(uintptr_t)15);
    *--sp = nullptr;
    *--sp = (void *)entry;
    for (int i = 0; i < NUM_SAVED; i++) {
        *--sp = nullptr;
    }
    f->sp = sp;
}

void fiber_switch(struct fiber *from, struct fiber *to, bool ends)
{
#ifdef CUSIM_ASAN
    __sanitizer_start_switch_fiber(ends ? nullptr : &from->asan, to->stack, to->stack_bytes);
#else
    (void)ends;
#endif
    tsan_switch(to->tsan);
    cusim_swap(&from->sp, to->sp);
#ifdef CUSIM_ASAN
    __sanitizer_finish_switch_fiber(from->asan, nullptr, nullptr);
#endif
}

void fiber_entered(struct fiber *caller)
{
#ifdef CUSIM_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (!caller->stack) {
        caller->stack = (char *)bottom;
        caller->stack_bytes = bytes;
    }
#else
    (void)caller;
#endif
}

} // namespace cusim
