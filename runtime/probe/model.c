/* A model folder: is every parameter there, in a shape that the config asks for? */
#include "runtime/probe/probe.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/fs.h"
#include "model/config.h"
#include "model/family.h"
#include "plan/params.h"
#include "runtime/ckpt/hf_names.h"

#define CONFIG_READ_MAX ((size_t)1 << 20)
#define TABLE_MAX_BYTES ((size_t)1 << 20)

/* Faults of a folder's tensors: the first in words, the rest counted. */
struct faults {
    char first[512];
    int64_t num;
};

static void add_fault(struct faults *f, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add_fault(struct faults *f, const char *fmt, ...)
{
    if (f->num++ == 0) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(f->first, sizeof f->first, fmt, args);
        va_end(args);
    }
}

static void print_shape(struct buf *b, const int64_t *shape, size_t num_dims)
{
    buf_putc(b, '[');
    for (size_t i = 0; i < num_dims; i++) {
        buf_printf(b, "%s%lld", i ? ", " : "", (long long)shape[i]);
    }
    buf_putc(b, ']');
}

static bool same_shape(const struct st_tensor *t, const ParamDef *def)
{
    if ((size_t)t->num_dims != def->n_shape) {
        return false;
    }
    return memcmp(t->shape, def->shape, def->n_shape * sizeof *def->shape) == 0;
}

static bool readable_dtype(enum st_dtype t)
{
    return t == ST_F32 || t == ST_F64 || t == ST_BF16 || t == ST_F16;
}

static void check_param(const struct st_folder *folder, const ParamDef *def, int64_t layer,
                        int64_t expert, struct faults *faults)
{
    char name[PARAM_NAME_MAX];
    ASSERT(family_expert_name(def, layer, expert, name, sizeof name));
    const struct st_file *file;
    const struct st_tensor *t = hf_find(folder, name, &file);
    if (!t) {
        add_fault(faults, "%s is missing", name);
        return;
    }
    if (!same_shape(t, def)) {
        struct buf b = {0};
        print_shape(&b, t->shape, (size_t)t->num_dims);
        buf_puts(&b, ", config.json asks for ");
        print_shape(&b, def->shape, def->n_shape);
        add_fault(faults, "%s has shape %s", name, b.data);
        buf_free(&b);
    } else if (!readable_dtype(t->dtype)) {
        add_fault(faults, "%s is stored as %s; F32, F64, BF16 and F16 are read", name,
                  st_dtype_name(t->dtype));
    }
}

/* A number without leading zeros, below max, where text begins; *end is behind it. */
static bool match_number(const char *text, int64_t max, const char **end)
{
    if (*text < '0' || *text > '9' || (text[0] == '0' && text[1] >= '0' && text[1] <= '9')) {
        return false;
    }
    char *after;
    errno = 0;
    long long number = strtoll(text, &after, 10);
    *end = after;
    return errno == 0 && number < max;
}

/* Is a tensor's name one of the defs'? "model.layers.7.x" against "model.layers.{layer}.x". */
static bool matches_def(const char *name, const ParamDef *def, int64_t num_layers)
{
    const char *want = def->name;
    while (*want) {
        bool layer = strncmp(want, "{layer}", 7) == 0;
        if (layer || strncmp(want, "{expert}", 8) == 0) {
            if (!match_number(name, layer ? num_layers : def->num_experts, &name)) {
                return false;
            }
            want += layer ? 7 : 8;
        } else if (*want++ != *name++) {
            return false;
        }
    }
    return *name == 0;
}

/* What the model doesn't know would be lost in training: better said before it starts. */
static void check_unknown(const struct st_folder *folder, const ModelConfig *config,
                          ParamDef *const *defs, size_t num_defs, struct faults *faults)
{
    for (int64_t i = 0; i < st_folder_num_tensors(folder); i++) {
        const char *tensor = st_folder_tensor(folder, i)->name;
        char name[PARAM_NAME_MAX];
        bool known = hf_passed_over(tensor, config->tie_word_embeddings);
        bool fits = hf_table_name(folder, tensor, name, sizeof name);
        for (size_t d = 0; d < num_defs && fits && !known; d++) {
            known = matches_def(name, defs[d], config->num_hidden_layers);
        }
        if (!known) {
            add_fault(faults, "%.200s is not a parameter of this model", tensor);
        }
    }
}

static void check_tensors(const struct st_folder *folder, const ModelConfig *config,
                          ParamDef *const *defs, size_t num_defs, struct faults *faults)
{
    for (size_t d = 0; d < num_defs; d++) {
        bool block = defs[d]->unit == UNIT_BLOCK;
        for (int64_t l = 0; l < (block ? config->num_hidden_layers : 1); l++) {
            int64_t experts = defs[d]->num_experts > 0 ? defs[d]->num_experts : 1;
            for (int64_t e = 0; e < experts; e++) {
                check_param(folder, defs[d], l, e, faults);
            }
        }
    }
    check_unknown(folder, config, defs, num_defs, faults);
}

static int check_folder(const char *dir, const struct st_folder *folder, const ModelConfig *config,
                        struct error *err)
{
    struct arena arena = {.max_bytes = TABLE_MAX_BYTES};
    struct faults faults = {0};
    ParamDef **defs;
    size_t num_defs;
    int rc = family_find(config->model_type)->params(config, &arena, &defs, &num_defs, err);
    if (rc == 0) {
        check_tensors(folder, config, defs, num_defs, &faults);
    }
    arena_free(&arena);
    if (rc != 0 || faults.num == 0) {
        return rc;
    }
    if (faults.num == 1) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: tensor %s", dir, faults.first);
    }
    return error_set(err, ERR_INVALID_ARGUMENT, "%s: tensor %s; %lld more %s wrong", dir,
                     faults.first, (long long)faults.num - 1,
                     faults.num == 2 ? "tensor is" : "tensors are");
}

/* ---- */

static int read_config(const struct roots *roots, const char *path, ModelConfig **out,
                       struct error *err)
{
    char *text;
    size_t len;
    if (roots_read_file(roots, path, CONFIG_READ_MAX, &text, &len, err) != 0) {
        return -1;
    }
    int rc = config_parse(path, text, len, out, err);
    free(text);
    return rc;
}

static ModelFacts *facts_new(ModelConfig *config)
{
    ModelFacts *f = malloc(sizeof *f);
    ASSERT(f);
    model_facts__init(f);
    f->config = config;
    f->has_num_params = 1;
    f->num_params = family_num_params(config);
    return f;
}

static void fill_from_folder(ModelFacts *f, const char *dir, const struct st_folder *folder)
{
    f->path = strdup(dir);
    f->dtype = strdup(st_dtype_name(st_folder_tensor(folder, 0)->dtype));
    f->files = calloc((size_t)st_folder_num_files(folder), sizeof *f->files);
    ASSERT(f->path && f->dtype && f->files);
    for (int32_t i = 0; i < st_folder_num_files(folder); i++) {
        f->files[i] = strdup(st_folder_file_name(folder, i));
        ASSERT(f->files[i]);
        f->n_files++;
    }
    f->has_size_bytes = 1;
    for (int64_t i = 0; i < st_folder_num_tensors(folder); i++) {
        const struct st_tensor *t = st_folder_tensor(folder, i);
        f->size_bytes += (int64_t)(t->end - t->begin);
    }
}

static int probe_folder(const struct roots *roots, const char *dir, ModelFacts **out,
                        struct error *err)
{
    char path[PATH_MAX];
    if (roots_check_dir(roots, dir, err) != 0) {
        return error_wrap(err, "model.path");
    }
    ModelConfig *config;
    struct st_folder *folder;
    if (!fs_join(path, sizeof path, dir, "config.json")) {
        return error_set(err, ERR_INVALID_ARGUMENT, "model.path: too long");
    }
    if (read_config(roots, path, &config, err) != 0) {
        return error_wrap(err, "model.path");
    }
    if (st_folder_open(&folder, roots, dir, err) != 0) {
        model_config__free_unpacked(config, NULL);
        return error_wrap(err, "model.path");
    }
    int rc = check_folder(dir, folder, config, err);
    if (rc == 0) {
        *out = facts_new(config);
        fill_from_folder(*out, dir, folder);
    } else {
        model_config__free_unpacked(config, NULL);
        error_wrap(err, "model.path");
    }
    st_folder_close(folder);
    return rc;
}

int probe_model(const struct roots *roots, const ModelSpec *model, ModelFacts **out,
                struct error *err)
{
    if (model->path) {
        return probe_check_path("model.path", model->path, err) != 0
                   ? -1
                   : probe_folder(roots, model->path, out, err);
    }
    ModelConfig *config;
    if (probe_check_path("model.config", model->config, err) != 0) {
        return -1;
    }
    if (read_config(roots, model->config, &config, err) != 0) {
        return error_wrap(err, "model.config");
    }
    *out = facts_new(config);
    return 0;
}
