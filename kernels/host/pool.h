/* The threads that share one operation's work. The caller is one of them; the others park when
 * there is nothing to do. Tasks are numbered; who runs which is chance, so a task's result must
 * depend on its number alone. */
#ifndef TANDEM_KERNELS_HOST_POOL_H
#define TANDEM_KERNELS_HOST_POOL_H

#include <stdint.h>

#include "base/error.h"

struct pool;

/* thread: 0..num_threads-1, for scratch space; two tasks never hold the same one at once. */
typedef void (*pool_task_fn)(void *arg, int64_t task, int thread);

/* num_threads >= 1, the caller included. */
int pool_new(struct pool **out, int num_threads, struct error *err);
void pool_free(struct pool *p);
int pool_num_threads(const struct pool *p);
/* Runs tasks 0..num_tasks-1 and returns when all are done. When another thread is using the pool
 * the caller does the work alone. p may be NULL: alone as well. */
void pool_run(struct pool *p, int64_t num_tasks, pool_task_fn fn, void *arg);

#endif
