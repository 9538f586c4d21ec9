/* Walks what lies of a parameter in a part of the state: where in the buffer, where in the whole
 * tensor. Reading, writing and random init all go this way. */
#ifndef TANDEM_RUNTIME_CKPT_STATE_H
#define TANDEM_RUNTIME_CKPT_STATE_H

#include "runtime/ckpt/ckpt.h"

/* Elements that lie side by side in both. */
struct state_run {
    int64_t whole; /* from the start of the whole tensor */
    int64_t at;    /* from the start of the part's buffer */
    int64_t numel;
};
typedef int (*state_fn)(void *arg, const struct state_run *run, struct error *err);

/* Calls fn for all of p that lies in part, in the order of the flat layout; stops where fn fails.
 */
int state_each(const struct ckpt_state *s, const struct ckpt_part *part, const struct param *p,
               state_fn fn, void *arg, struct error *err);
/* The same for what this rank has to save of it, were there no other replica: owned, and counted
 * (plan/pieces.h). Ascending in the whole tensor too. */
int state_each_owned(const struct ckpt_state *s, const struct ckpt_part *part,
                     const struct param *p, state_fn fn, void *arg, struct error *err);

/* Does anything of p lie in part? */
bool state_any(const struct ckpt_state *s, const struct ckpt_part *part, const struct param *p);

/* Elements of the whole tensor. */
int64_t state_true_numel(const struct param *p);
/* Where element i of a buffer of this type lies. */
void *state_at(const struct ckpt_state *s, const struct ckpt_part *part, int64_t i);

#endif
