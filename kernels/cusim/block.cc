/* The threads of a block take turns: one runs until it waits, then the next that is ready. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cusim/block_state.h"
#include "kernels/cusim/schedule.h"
#include "kernels/cusim/tsan.h"

namespace cusim
{

struct where here;
struct block block;

void fail(const char *fmt, ...)
{
    va_list args;
    fprintf(stderr, "cusim: ");
    if (here.in_kernel) {
        fprintf(stderr, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u): ", block.launch->name,
                here.bid.x, here.bid.y, here.bid.z, here.tid.x, here.tid.y, here.tid.z);
    }
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    fflush(stderr);
    abort();
}

/* ---- turns ---- */

static void make_ready(int t)
{
    block.ready[(block.first_ready + block.num_ready) % MAX_THREADS] = t;
    block.num_ready++;
}

static int take_ready()
{
    if (block.num_ready == 0) {
        return -1;
    }
    int *first = &block.ready[block.first_ready];
    if (schedule_now()->threads == CUSIM_RANDOM) {
        unsigned pick = (unsigned)block.first_ready + schedule_draw((unsigned)block.num_ready);
        int *other = &block.ready[pick % MAX_THREADS];
        int t = *other;
        *other = *first;
        *first = t;
    }
    int t = *first;
    block.first_ready = (block.first_ready + 1) % MAX_THREADS;
    block.num_ready--;
    return t;
}

void block_wake(int first, int num, unsigned mask)
{
    bool back = schedule_now()->threads == CUSIM_REVERSE;
    for (int i = 0; i < num; i++) {
        int k = back ? num - 1 - i : i;
        if (num > WARP_SIZE || (mask >> k & 1)) {
            make_ready(first + k);
        }
    }
}

[[noreturn]] static void stuck()
{
    fprintf(stderr, "cusim: no thread can go on:\n");
    int num_shown = 0;
    for (int t = 0; t < block.num_threads && num_shown < 40; t++) {
        const struct thread *th = &block.threads[t];
        if (!th->done && th->file) {
            fprintf(stderr, "  thread %d waits at %s:%d", t, th->file, th->line);
            fprintf(stderr, th->mask ? " for lanes %08x of warp %d\n" : " at a barrier\n", th->mask,
                    th->warp);
            num_shown++;
        }
    }
    fail("deadlock: these threads wait for others that never come");
}

static void become(int t)
{
    block.current = t;
    here.tid = block.threads[t].tid;
    here.lane = block.threads[t].lane;
}

static void run_threads();

static void give_fiber(int t)
{
    struct thread *th = &block.threads[t];
    if (!th->fiber) {
        th->fiber = lanes_take(block.lanes, block.turn, t, block.num_threads);
        fiber_begin(th->fiber, run_threads);
    }
}

static void switch_to(struct fiber *to, bool ends)
{
    struct fiber *from = block.fiber;
    block.fiber = to;
    fiber_switch(from, to, ends);
}

void block_wait(const char *file, int line)
{
    int me = block.current;
    block.threads[me].file = file;
    block.threads[me].line = line;
    copies_drift();
    int next = take_ready();
    if (next < 0) {
        stuck();
    }
    if (next != me) {
        give_fiber(next);
        become(next);
        switch_to(block.threads[next].fiber, false);
        become(me);
    }
}

static void thread_ended()
{
    struct thread *th = &block.threads[block.current];
    copies_check_none();
    th->done = true;
    block.num_done++;
    block.warps[th->warp].done |= 1u << th->lane;
    if (block.num_arrived > 0) {
        fail("returns while %d threads wait at the barrier %s:%d", block.num_arrived,
             block.barrier_file, block.barrier_line);
    }
    tsan_release(block.end_token);
    tsan_release(lanes_token_after(block.lanes, block.turn));
}

/* What a fiber does: threads that nobody has begun, one behind the other; under ThreadSanitizer
 * just one, since each is a thread of its own there. */
static void run_threads()
{
    fiber_entered(&block.caller);
    struct fiber *self = block.fiber;
    for (;;) {
        tsan_acquire(block.begin_token);
        tsan_acquire(lanes_token_before(block.lanes, block.turn));
        block.launch->run(block.launch->args);
        thread_ended();
        int next = take_ready();
        if (next < 0) {
            if (block.num_done != block.num_threads) {
                stuck();
            }
            lanes_give(block.lanes, self);
            switch_to(&block.caller, true);
        }
        if (!TSAN_ON && !block.threads[next].fiber) {
            block.threads[next].fiber = self;
            become(next);
            continue;
        }
        lanes_give(block.lanes, self);
        give_fiber(next);
        become(next);
        switch_to(block.threads[next].fiber, true);
    }
}

/* ---- the barrier ---- */

int block_barrier(int value, const char *file, int line)
{
    if (block.num_done > 0) {
        fail("%s:%d: a barrier after %d threads have returned", file, line, block.num_done);
    }
    if (block.num_arrived == 0) {
        block.barrier_file = file;
        block.barrier_line = line;
        block.barrier_token = tsan_token();
        block.num_nonzero = 0;
    } else if (line != block.barrier_line || strcmp(file, block.barrier_file) != 0) {
        fail("divergent barrier: this thread is at %s:%d, %d others wait at %s:%d", file, line,
             block.num_arrived, block.barrier_file, block.barrier_line);
    }
    void *token = block.barrier_token;
    tsan_release(token);
    block.num_nonzero += value != 0;
    if (++block.num_arrived == block.num_threads) {
        block.num_arrived = 0;
        block.last_nonzero = block.num_nonzero;
        block_wake(0, block.num_threads, ~0u);
    }
    block_wait(file, line);
    tsan_acquire(token);
    /* Nobody can be a barrier further before all have left this one. */
    return block.last_nonzero;
}

/* ---- a grid ---- */

static void prepare(uint64_t number, dim3 grid, dim3 size)
{
    block.num_done = 0;
    block.num_arrived = 0;
    block.first_ready = 0;
    block.num_ready = 0;
    here.bid.x = (unsigned)(number % grid.x);
    here.bid.y = (unsigned)(number / grid.x % grid.y);
    here.bid.z = (unsigned)(number / grid.x / grid.y);
    for (int w = 0; w * WARP_SIZE < block.num_threads; w++) {
        struct warp *warp = &block.warps[w];
        int left = block.num_threads - w * WARP_SIZE;
        warp->exist = left >= WARP_SIZE ? ~0u : (1u << left) - 1;
        warp->done = 0;
        for (int i = 0; i < MAX_MASKS; i++) {
            warp->meetings[i].mask = 0;
        }
    }
    for (int t = 0; t < block.num_threads; t++) {
        unsigned i = (unsigned)t;
        block.threads[t] = {{i % size.x, i / size.x % size.y, i / size.x / size.y},
                            t % WARP_SIZE,
                            t / WARP_SIZE,
                            nullptr,
                            false,
                            nullptr,
                            0,
                            0,
                            0,
                            -1};
    }
    copies_reset();
}

static void block_run(uint64_t number)
{
    const struct launch *l = block.launch;
    prepare(number, l->grid, l->block);
    shared_begin_block(l->dynamic_bytes, l->name, lanes_area(block.lanes, block.turn));
    block_wake(0, block.num_threads, block.warps[0].exist);
    int first = take_ready();
    give_fiber(first);
    become(first);
    block.fiber = &block.caller;
    here.in_kernel = true;
    switch_to(block.threads[first].fiber, false);
    here.in_kernel = false;
    shared_end_block();
}

void grid_run(const struct launch *l, struct lanes *lanes)
{
    uint64_t num_blocks = (uint64_t)l->grid.x * l->grid.y * l->grid.z;
    block.launch = l;
    block.lanes = lanes;
    block.num_threads = (int)(l->block.x * l->block.y * l->block.z);
    block.caller = {nullptr, 0, nullptr, tsan_fiber_now(), nullptr};
    here.bdim = l->block;
    here.gdim = l->grid;
    lanes_reserve(lanes, block.num_threads);
    block.begin_token = tsan_token();
    block.end_token = tsan_token();
    tsan_release(block.begin_token);
    uint64_t offset = 0;
    if (schedule_now()->threads == CUSIM_RANDOM) {
        offset = schedule_draw((unsigned)(num_blocks < 1u << 30 ? num_blocks : 1u << 30));
    }
    for (uint64_t i = 0; i < num_blocks; i++) {
        bool back = schedule_now()->threads == CUSIM_REVERSE;
        block.turn = i;
        block_run(back ? num_blocks - 1 - i : (i + offset) % num_blocks);
    }
    tsan_acquire(block.end_token);
}

} // namespace cusim
