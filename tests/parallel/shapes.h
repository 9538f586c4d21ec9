/* Small models, one of each family, that nobody tuned for: odd vocabularies, head_dim apart from
 * hidden_size / heads, fewer KV heads than tensor ranks, batches that are no powers of two. As
 * folders on disk: config.json, model.safetensors with every parameter drawn at random (biases and
 * norms too, which random init would leave at 0 and 1), tokens.bin, packed.jsonl. */
#ifndef TANDEM_TESTS_PARALLEL_SHAPES_H
#define TANDEM_TESTS_PARALLEL_SHAPES_H

#include <stdbool.h>
#include <stdint.h>

#include "golden.h"
#include "proto/names.h"

struct shape {
    const char *family;
    int64_t heads, kv_heads, head_dim, hidden, ffn, layers, vocab;
    bool tied;
    bool llama3; /* its RoPE scaling */
    int64_t batch, seq_len;
    double eps; /* 0 = 1e-5 */
};

#define NUM_SHAPES 4
extern const struct shape shapes[NUM_SHAPES];

/* A shape on disk. */
struct shape_files {
    char *made; /* by gang_make_dir; NULL = the caller's folder */
    char dir[256], config[300], tokens[300], packed[300];
    struct golden sizes; /* for gang_spec */
};

/* Element idx of the parameter called name, which is the scale of a norm or isn't. */
typedef double (*shape_value_fn)(void *arg, const char *name, int64_t idx, bool norm);
/* Random numbers, by name and idx alone. */
double shape_draw(void *unused, const char *name, int64_t idx, bool norm);
/* Into a new temporary folder. value: NULL = shape_draw. */
void shape_write(struct shape_files *out, const struct shape *s, shape_value_fn value, void *arg);
/* Into dir, which is there. */
void shape_write_into(struct shape_files *out, const char *dir, const struct shape *s,
                      shape_value_fn value, void *arg);
void shape_remove(struct shape_files *f);
/* In place of random tokens: the same one everywhere. */
void shape_write_one_token(const struct shape_files *f, const struct shape *s, uint16_t token);

/* One row of a packed file; targets of -100 are ignored. */
struct packed_row {
    const int32_t *ids, *labels, *positions, *segments;
    int64_t len;
};
void shape_write_packed(const char *path, const struct packed_row *rows, int64_t num_rows);

#endif
