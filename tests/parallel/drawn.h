/* A model, its data and a layout that nobody tuned for, drawn from a seed: what the sweeps over
 * shapes have in common. A draw takes the stream's next number, so whoever draws in another order
 * gets other cases. */
#ifndef TANDEM_TESTS_PARALLEL_DRAWN_H
#define TANDEM_TESTS_PARALLEL_DRAWN_H

#include "gang.h"
#include "shapes.h"

struct drawn {
    /* Set by the test. */
    const char *stream;
    uint64_t seed;

    uint64_t next;
    struct shape shape;
    int64_t data, tensor, zero_stage, shard_size, micro;
    bool sequence_parallel, shuffled, shared_token, packed, adam;
    const char *bucket_mb, *clip;
};

struct drawn_list {
    const int64_t *at;
    size_t num;
};
#define DRAWN_LIST(...)                                                                            \
    ((struct drawn_list){(const int64_t[]){__VA_ARGS__},                                           \
                         sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)})

/* What a shape is drawn from. */
struct drawn_choice {
    struct drawn_list heads, kv_heads; /* pairs */
    struct drawn_list head_dim, hidden, heads_to_ffn, vocab;
    struct drawn_list seq_len, batch;
    struct drawn_list large_vocab_seq_len; /* where the vocabulary has over 1000 words */
    struct drawn_list long_batch;          /* with sequences or heads over 64; none: batch */
};

int64_t drawn_pick(struct drawn *d, struct drawn_list list);
#define PICK(d, ...) drawn_pick((d), DRAWN_LIST(__VA_ARGS__))
int64_t drawn_divisor_of(struct drawn *d, int64_t n);
void drawn_shape(struct drawn *d, const struct drawn_choice *from);
/* One that the shape allows. max_ranks: 0 = any number. */
void drawn_layout(struct drawn *d, struct drawn_list data, int64_t max_ranks);
void drawn_bucket_and_clip(struct drawn *d);

/* "heads 6/3 x 8, ...": shape, layout and data, into out. */
void drawn_words(const struct drawn *d, char *out, size_t size);
/* The job on one rank, by the reference backend. */
struct gang_spec drawn_spec(const struct drawn *d, const struct shape_files *files, int64_t steps);
/* Puts the layout into it. */
void drawn_lay_out(const struct drawn *d, struct gang_spec *spec);

#endif
