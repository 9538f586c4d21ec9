/* A rank's memory, set aside before training begins: one piece for each kind of thing that it
 * keeps, as large as the plan says (MemoryEstimate.arenas), in device memory or in this rank's area
 * of the shared segment. What is taken from one is not given back: nothing is allocated inside a
 * step.
 *
 * Whoever wants more than is planned fails when it is opened, with words: then the plan's
 * arithmetic and the runtime's differ, which is a mistake of ours. */
#ifndef TANDEM_RUNTIME_PARALLEL_ARENAS_H
#define TANDEM_RUNTIME_PARALLEL_ARENAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/device.h"
#include "proto/names.h"
#include "runtime/comm/comm.h"

struct arenas;

/* planned: NULL, or without arenas = nothing is planned and every piece is allocated by itself, as
 * programs without a plan do. world: NULL with one rank; one without shared memory is as good as
 * none. */
int arenas_open(struct arenas **out, const MemoryEstimate *planned, struct device *dev,
                struct comm_world *world, struct error *err);
/* After all that was taken is no longer used; before device and world are closed. */
void arenas_free(struct arenas *a);

/* Zeroed, 64-byte aligned; valid as long as a. NULL: err says what is missing. shared: other ranks
 * read it in place, so it has to lie in the segment (where there is one). */
void *arenas_take(struct arenas *a, ArenaKind kind, size_t bytes, bool shared, struct error *err);

/* The most that was ever given out of one kind, in pieces of 64 bytes, and what was planned. */
struct arena_use {
    ArenaKind kind;
    bool shared;
    int64_t planned, used;
};
#define ARENAS_MAX 17
/* Returns their number. */
int arenas_uses(const struct arenas *a, struct arena_use out[ARENAS_MAX]);
/* "activations" */
const char *arenas_kind_word(ArenaKind kind);

#endif
