/* Where the elements of a rank's part of a parameter lie in the whole tensor (true shape,
 * row-major, as checkpoints and Hugging Face folders hold it). One place knows this; reading,
 * writing, random init and tests go through it.
 *
 * Over the tensor axis a parameter is cut in its shard_dim (in shard_groups blocks, each cut by
 * itself); a KV head that lies on several ranks is the same piece on each; padded rows lie nowhere.
 */
#ifndef TANDEM_PLAN_PIECES_H
#define TANDEM_PLAN_PIECES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "plan/params.h"

/* Elements of a flat buffer as the table lays it out, [begin, begin + numel), and where they lie in
 * the buffer at hand: from element `at` on. A buffer that holds everything is {0, flat_numel, 0}; a
 * rank's shard has one of these for each bucket. */
struct flat_range {
    int64_t begin, numel, at;
};

/* A run of elements that lie side by side in both. */
struct piece {
    int64_t whole; /* from the start of the whole tensor */
    int64_t local; /* from the start of the rank's part */
    int64_t numel;
};
typedef int (*piece_fn)(void *arg, const struct piece *piece, struct error *err);

/* Calls fn for each run of the local elements begin <= i < end of p on tensor rank idx of size,
 * ascending by local; stops where fn fails. Elements that are padding are passed over. */
int pieces_each(const struct param *p, int64_t size, int64_t idx, int64_t begin, int64_t end,
                piece_fn fn, void *arg, struct error *err);

/* Is tensor rank idx the one of all that hold this part of p which counts it (in the norm) and
 * writes it? */
bool pieces_counted(const struct param *p, int64_t size, int64_t idx);

#endif
