#include "shapes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/fs.h"
#include "base/rng.h"
#include "gang.h"
#include "model/config.h"
#include "model/family.h"
#include "plan/params.h"
#include "runtime/ckpt/safetensors.h"

#define SEED 20
#define TABLE_MAX_BYTES ((size_t)1 << 20)
#define TENSORS_MAX 128

const struct shape shapes[NUM_SHAPES] = {
    {.family = "llama",
     .heads = 6,
     .kv_heads = 3,
     .head_dim = 8,
     .hidden = 40,
     .ffn = 48,
     .layers = 2,
     .vocab = 331,
     .batch = 12,
     .seq_len = 7},
    {.family = "qwen2",
     .heads = 4,
     .kv_heads = 2,
     .head_dim = 6,
     .hidden = 20,
     .ffn = 28,
     .layers = 3,
     .vocab = 97,
     .batch = 15,
     .seq_len = 9},
    {.family = "qwen3",
     .heads = 10,
     .kv_heads = 5,
     .head_dim = 4,
     .hidden = 34,
     .ffn = 30,
     .layers = 1,
     .vocab = 53,
     .tied = true,
     .batch = 30,
     .seq_len = 5},
    {.family = "gpt2",
     .heads = 6,
     .kv_heads = 6,
     .head_dim = 6,
     .hidden = 36,
     .ffn = 60,
     .layers = 2,
     .vocab = 101,
     .tied = true,
     .batch = 20,
     .seq_len = 11},
};

/* ---- config.json ------------------------------------------------------------------------------
 */

static void put_config(struct buf *b, const struct shape *s)
{
    double eps = s->eps > 0.0 ? s->eps : 1e-5;
    if (strcmp(s->family, "gpt2") == 0) {
        buf_printf(b,
                   "{\"model_type\": \"gpt2\", \"n_embd\": %lld, \"n_inner\": %lld,"
                   " \"n_layer\": %lld, \"n_head\": %lld, \"vocab_size\": %lld,"
                   " \"n_positions\": %lld, \"layer_norm_epsilon\": %g,"
                   " \"activation_function\": \"gelu_new\"}",
                   (long long)s->hidden, (long long)s->ffn, (long long)s->layers,
                   (long long)s->heads, (long long)s->vocab, (long long)s->seq_len + 3, eps);
        return;
    }
    buf_printf(b,
               "{\"model_type\": \"%s\", \"hidden_size\": %lld, \"intermediate_size\": %lld,"
               " \"num_hidden_layers\": %lld, \"num_attention_heads\": %lld,"
               " \"num_key_value_heads\": %lld, \"head_dim\": %lld, \"vocab_size\": %lld,"
               " \"max_position_embeddings\": %lld, \"rms_norm_eps\": %g, \"rope_theta\": 10000.0,"
               " \"initializer_range\": 0.1, \"tie_word_embeddings\": %s, \"rope_scaling\": %s}",
               s->family, (long long)s->hidden, (long long)s->ffn, (long long)s->layers,
               (long long)s->heads, (long long)s->kv_heads, (long long)s->head_dim,
               (long long)s->vocab, (long long)(s->seq_len > 64 ? s->seq_len : 64), eps,
               s->tied ? "true" : "false",
               s->llama3 ? "{\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0,"
                           " \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 16}"
                         : "null");
}

static ModelConfig *write_config(const char *path, const struct shape *s)
{
    struct buf b = {0};
    struct error err = {0};
    ModelConfig *config = NULL;
    put_config(&b, s);
    if (fs_write_atomic(path, b.data, b.len, 0600, &err) != 0 ||
        config_parse(path, b.data, b.len, &config, &err) != 0)
        fail_msg("%s", err.text);
    buf_free(&b);
    return config;
}

/* ---- model.safetensors ------------------------------------------------------------------------
 */

struct tensors {
    struct st_tensor list[TENSORS_MAX];
    char names[TENSORS_MAX][PARAM_NAME_MAX];
    bool norm[TENSORS_MAX]; /* the scale of one */
    int32_t num;
};

static void add_tensor(struct tensors *t, const ParamDef *def, int64_t layer)
{
    assert_true(t->num < TENSORS_MAX);
    struct st_tensor *x = &t->list[t->num];
    *x = (struct st_tensor){.dtype = ST_F64, .num_dims = (int32_t)def->n_shape};
    assert_true(family_expert_name(def, layer, -1, t->names[t->num], PARAM_NAME_MAX));
    x->name = t->names[t->num];
    for (size_t i = 0; i < def->n_shape; i++)
        x->shape[i] = def->shape[i];
    t->norm[t->num++] = def->init_ones;
}

static void list_tensors(struct tensors *t, const ModelConfig *config)
{
    struct arena arena = {.max_bytes = TABLE_MAX_BYTES};
    struct error err = {0};
    ParamDef **defs;
    size_t num;
    if (family_find(config->model_type)->params(config, &arena, &defs, &num, &err) != 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < num; i++) {
        bool block = defs[i]->unit == UNIT_BLOCK;
        for (int64_t l = 0; l < (block ? config->num_hidden_layers : 1); l++)
            add_tensor(t, defs[i], block ? l : -1);
    }
    arena_free(&arena);
}

double shape_draw(void *unused, const char *name, int64_t idx, bool norm)
{
    (void)unused;
    double x = rng_normal(SEED, rng_stream(name), (uint64_t)idx);
    return norm ? 1.0 + 0.2 * x : 0.15 * x;
}

static void write_weights(const char *path, const ModelConfig *config, shape_value_fn value,
                          void *arg)
{
    struct tensors *t = calloc(1, sizeof(*t));
    struct error err = {0};
    char *header;
    size_t header_len;
    uint64_t data_bytes;
    assert_non_null(t);
    list_tensors(t, config);
    if (st_layout(t->list, t->num, NULL, &header, &header_len, &data_bytes, &err) != 0)
        fail_msg("%s", err.text);
    char *file = malloc(header_len + data_bytes);
    assert_non_null(file);
    memcpy(file, header, header_len);
    for (int32_t i = 0; i < t->num; i++) {
        int64_t numel = (int64_t)((t->list[i].end - t->list[i].begin) / sizeof(double));
        char *at = file + header_len + t->list[i].begin;
        for (int64_t j = 0; j < numel; j++) {
            double x = (value != NULL ? value : shape_draw)(arg, t->names[i], j, t->norm[i]);
            memcpy(at + (size_t)j * sizeof(x), &x, sizeof(x));
        }
    }
    if (fs_write_atomic(path, file, header_len + data_bytes, 0600, &err) != 0)
        fail_msg("%s", err.text);
    free(file);
    free(header);
    free(t);
}

/* ---- data -------------------------------------------------------------------------------------
 */

/* A step and a half of samples, so that the second step begins a new epoch. */
static int64_t num_rows(const struct shape *s)
{
    return s->batch * 3 / 2 + 1;
}

static int32_t draw_token(const struct shape *s, const char *stream, int64_t idx)
{
    return (int32_t)(rng_u64(SEED, rng_stream(stream), (uint64_t)idx) % (uint64_t)s->vocab);
}

/* one: every token; -1 = random ones. */
static void write_tokens(const char *path, const struct shape *s, int32_t one)
{
    size_t num = (size_t)(num_rows(s) * (s->seq_len + 1));
    uint16_t *tokens = malloc(num * sizeof(*tokens));
    assert_non_null(tokens);
    for (size_t i = 0; i < num; i++)
        tokens[i] = (uint16_t)(one >= 0 ? one : draw_token(s, "tokens", (int64_t)i));
    assert_int_equal(fs_write_atomic(path, tokens, num * sizeof(*tokens), 0600, NULL), 0);
    free(tokens);
}

void shape_write_one_token(const struct shape_files *f, const struct shape *s, uint16_t token)
{
    write_tokens(f->tokens, s, token);
}

static void put_list(struct buf *b, const char *key, const int32_t *list, int64_t len)
{
    buf_printf(b, "\"%s\": [", key);
    for (int64_t i = 0; i < len; i++)
        buf_printf(b, "%s%d", i ? ", " : "", (int)list[i]);
    buf_puts(b, "]");
}

void shape_write_packed(const char *path, const struct packed_row *rows, int64_t num)
{
    struct buf b = {0};
    for (int64_t i = 0; i < num; i++) {
        buf_puts(&b, "{");
        put_list(&b, "input_ids", rows[i].ids, rows[i].len);
        buf_puts(&b, ", ");
        put_list(&b, "labels", rows[i].labels, rows[i].len);
        buf_puts(&b, ", ");
        put_list(&b, "position_ids", rows[i].positions, rows[i].len);
        buf_puts(&b, ", ");
        put_list(&b, "segment_ids", rows[i].segments, rows[i].len);
        buf_puts(&b, "}\n");
    }
    assert_int_equal(fs_write_atomic(path, b.data, b.len, 0600, NULL), 0);
    buf_free(&b);
}

/* Documents of one to four tokens, about half of the targets ignored: rows have very unequal
 * numbers of them. Some rows are shorter than seq_len. */
static void write_packed(const char *path, const struct shape *s)
{
    enum { LEN_MAX = 160 };
    static int32_t ids[64][LEN_MAX], labels[64][LEN_MAX], positions[64][LEN_MAX],
        segments[64][LEN_MAX];
    struct packed_row rows[64];
    int64_t num = num_rows(s);
    assert_true(num <= 64 && s->seq_len <= LEN_MAX);
    for (int64_t i = 0; i < num; i++) {
        int64_t len = s->seq_len - (s->seq_len > 1 && i % 5 == 3), position = 0, segment = 0;
        for (int64_t j = 0; j < len; j++) {
            uint64_t dice = rng_u64(SEED, rng_stream("packed"), (uint64_t)(i * LEN_MAX + j));
            if (j > 0 && dice % 3 == 0) {
                position = 0;
                segment++;
            }
            ids[i][j] = draw_token(s, "packed ids", i * LEN_MAX + j);
            bool ignored = (i % 3 == 0 && j > 1) || (dice >> 8) % 3 == 0;
            labels[i][j] = ignored ? -100 : draw_token(s, "packed labels", i * LEN_MAX + j);
            positions[i][j] = (int32_t)position++;
            segments[i][j] = (int32_t)segment;
        }
        rows[i] = (struct packed_row){ids[i], labels[i], positions[i], segments[i], len};
    }
    shape_write_packed(path, rows, num);
}

/* ---- the folder -------------------------------------------------------------------------------
 */

void shape_write_into(struct shape_files *out, const char *dir, const struct shape *s,
                      shape_value_fn value, void *arg)
{
    char weights[300];
    out->made = NULL;
    snprintf(out->dir, sizeof(out->dir), "%s", dir);
    fs_join(out->config, sizeof(out->config), dir, "config.json");
    fs_join(out->tokens, sizeof(out->tokens), dir, "tokens.bin");
    fs_join(out->packed, sizeof(out->packed), dir, "packed.jsonl");
    fs_join(weights, sizeof(weights), dir, "model.safetensors");
    out->sizes = (struct golden){s->family, s->batch, s->seq_len};
    ModelConfig *config = write_config(out->config, s);
    write_weights(weights, config, value, arg);
    model_config__free_unpacked(config, NULL);
    write_tokens(out->tokens, s, -1);
    write_packed(out->packed, s);
}

void shape_write(struct shape_files *out, const struct shape *s, shape_value_fn value, void *arg)
{
    char *dir = gang_make_dir();
    shape_write_into(out, dir, s, value, arg);
    out->made = dir;
}

void shape_remove(struct shape_files *f)
{
    gang_remove_dir(f->made);
    f->made = NULL;
}
