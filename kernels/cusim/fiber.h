/* A fiber: a stack of its own, switched to by hand. One runs one simulated thread, or many one
 * behind the other. */
#ifndef TANDEM_KERNELS_CUSIM_FIBER_H
#define TANDEM_KERNELS_CUSIM_FIBER_H

#include <stddef.h>

namespace cusim
{

struct fiber {
    char *stack; /* NULL: the stack that the program came with */
    size_t stack_bytes;
    void *sp;
    void *tsan;
    void *asan;
};

/* With a stack and a page below it that nobody may touch. Ends the program if there is no memory.
 */
void fiber_init(struct fiber *f);
void fiber_drop(struct fiber *f);
/* The next switch to f begins `entry`, which never returns. */
void fiber_begin(struct fiber *f, void (*entry)());
/* `ends`: nothing of `from` is needed any more. */
void fiber_switch(struct fiber *from, struct fiber *to, bool ends);
/* First in an entry. caller: the fiber whose stack the sanitizer doesn't know yet. */
void fiber_entered(struct fiber *caller);

} // namespace cusim

#endif
