#include "runtime/ckpt/ckpt.h"

#include "runtime/ckpt/fill.h"
#include "runtime/ckpt/hf_names.h"
#include "runtime/ckpt/safetensors.h"

static bool has_tied(const struct param_table *table)
{
    for (int32_t i = 0; i < table->num_params; i++) {
        if (table->params[i].tied) {
            return true;
        }
    }
    return false;
}

/* Is there a tensor that the model doesn't know? It would be lost in training. */
static int check_known(const char *dir, const struct st_folder *folder,
                       const struct param_table *table, struct error *err)
{
    bool tied = has_tied(table);
    for (int64_t i = 0; i < st_folder_num_tensors(folder); i++) {
        const char *tensor = st_folder_tensor(folder, i)->name;
        char name[PARAM_NAME_MAX];
        if (hf_passed_over(tensor, tied) ||
            (hf_table_name(folder, tensor, name, sizeof name) && params_find(table, name) >= 0)) {
            continue;
        }
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: tensor \"%.200s\" is not one of the model's parameters", dir, tensor);
    }
    return 0;
}

static int fill_all(const char *dir, const struct st_folder *folder, const struct ckpt_state *s,
                    struct error *err)
{
    for (int32_t i = 0; i < s->table->num_params; i++) {
        const struct param *p = &s->table->params[i];
        const struct st_file *file;
        const struct st_tensor *t = hf_find(folder, p->name, &file);
        if (!t) {
            return error_set(err, ERR_INVALID_ARGUMENT, "%s: tensor \"%s\" is missing", dir,
                             p->name);
        }
        if (fill_param(s, &s->weights, p, file, t, err) != 0) {
            return -1;
        }
    }
    return 0;
}

int ckpt_load_hf(const struct roots *roots, const char *dir, const struct ckpt_state *state,
                 struct error *err)
{
    struct st_folder *folder;
    if (st_folder_open(&folder, roots, dir, err) != 0) {
        return -1;
    }
    int rc = check_known(dir, folder, state->table, err);
    if (rc == 0) {
        rc = fill_all(dir, folder, state, err);
    }
    st_folder_close(folder);
    return rc;
}
