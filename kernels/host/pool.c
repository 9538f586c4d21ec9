#include "kernels/host/pool.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* A job's state is one word: its number above, how many tasks are still to be taken below. A
 * worker takes a task by lowering the word, which fails once the job is another. */
#define TICKET_BITS 32
#define MAX_TASKS ((INT64_C(1) << 31) - 1)

struct pool {
    int num_threads;
    int num_spins;
    int num_started;
    struct worker *workers;
    pthread_mutex_t owner; /* held by the thread whose job runs */

    /* Written by the owner before the ticket, stable while a task is held. */
    pool_task_fn fn;
    void *arg;
    int64_t num_tasks;

    _Atomic uint64_t ticket;
    _Atomic int64_t num_done;
    atomic_int num_sleeping;
    atomic_bool stop;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_cond_t done;
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    int idx;
};

static inline void cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Takes tasks of job `number` until none is left. */
static void work_on(struct pool *p, uint64_t number, int thread)
{
    uint64_t ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
    for (;;) {
        uint64_t left = ticket & ((UINT64_C(1) << TICKET_BITS) - 1);
        if (ticket >> TICKET_BITS != number || left == 0) {
            return;
        }
        if (!atomic_compare_exchange_weak_explicit(&p->ticket, &ticket, ticket - 1,
                                                   memory_order_acquire, memory_order_acquire)) {
            continue;
        }
        int64_t num_tasks = p->num_tasks;
        p->fn(p->arg, num_tasks - (int64_t)left, thread);
        int64_t num_done = 1 + atomic_fetch_add_explicit(&p->num_done, 1, memory_order_acq_rel);
        if (num_done == num_tasks && thread != 0) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
        ticket = atomic_load_explicit(&p->ticket, memory_order_acquire);
    }
}

static bool has_news(struct pool *p, uint64_t seen)
{
    return atomic_load(&p->ticket) >> TICKET_BITS != seen || atomic_load(&p->stop);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    uint64_t seen = 0;
    while (!atomic_load(&p->stop)) {
        for (int i = 0; i < p->num_spins && !has_news(p, seen); i++) {
            cpu_pause();
        }
        if (!has_news(p, seen)) {
            pthread_mutex_lock(&p->lock);
            atomic_fetch_add(&p->num_sleeping, 1);
            while (!has_news(p, seen)) {
                pthread_cond_wait(&p->work, &p->lock);
            }
            atomic_fetch_sub(&p->num_sleeping, 1);
            pthread_mutex_unlock(&p->lock);
        }
        seen = atomic_load(&p->ticket) >> TICKET_BITS;
        work_on(p, seen, w->idx);
    }
    return NULL;
}

/* Spinning pays only where every thread has a core. */
static int choose_spins(int num_threads)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return 0;
    }
    return num_threads <= CPU_COUNT(&set) ? 2000 : 0;
}

int pool_new(struct pool **out, int num_threads, struct error *err)
{
    ASSERT(num_threads >= 1);
    struct pool *p = calloc(1, sizeof *p);
    struct worker *workers = calloc((size_t)num_threads, sizeof *workers);
    if (!p || !workers) {
        free(p);
        free(workers);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "thread pool: no memory");
    }
    p->num_threads = num_threads;
    p->num_spins = choose_spins(num_threads);
    p->workers = workers;
    pthread_mutex_init(&p->owner, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    for (int i = 1; i < num_threads; i++) {
        workers[i] = (struct worker){.pool = p, .idx = i};
        int rc = pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]);
        if (rc != 0) {
            pool_free(p);
            return error_errno(err, rc, "thread pool: thread %d of %d", i, num_threads);
        }
        p->num_started = i;
    }
    *out = p;
    return 0;
}

void pool_free(struct pool *p)
{
    if (!p) {
        return;
    }
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->stop, true);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i <= p->num_started; i++) {
        pthread_join(p->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->owner);
    free(p->workers);
    free(p);
}

int pool_num_threads(const struct pool *p)
{
    return p ? p->num_threads : 1;
}

static void wait_until_done(struct pool *p, int64_t num_tasks)
{
    for (int i = 0; i < p->num_spins; i++) {
        if (atomic_load_explicit(&p->num_done, memory_order_acquire) == num_tasks) {
            return;
        }
        cpu_pause();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load_explicit(&p->num_done, memory_order_acquire) != num_tasks) {
        pthread_cond_wait(&p->done, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
}

void pool_run(struct pool *p, int64_t num_tasks, pool_task_fn fn, void *arg)
{
    ASSERT(num_tasks <= MAX_TASKS);
    if (num_tasks <= 1 || !p || p->num_threads == 1 || pthread_mutex_trylock(&p->owner) != 0) {
        for (int64_t i = 0; i < num_tasks; i++) {
            fn(arg, i, 0);
        }
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->num_tasks = num_tasks;
    atomic_store_explicit(&p->num_done, 0, memory_order_relaxed);
    uint64_t number = (atomic_load(&p->ticket) >> TICKET_BITS) + 1;
    number &= (UINT64_C(1) << TICKET_BITS) - 1;
    atomic_store(&p->ticket, number << TICKET_BITS | (uint64_t)num_tasks);
    if (atomic_load(&p->num_sleeping) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->work);
        pthread_mutex_unlock(&p->lock);
    }
    work_on(p, number, 0);
    wait_until_done(p, num_tasks);
    pthread_mutex_unlock(&p->owner);
}
