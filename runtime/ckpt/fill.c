#include "runtime/ckpt/fill.h"

#include <stdio.h>

/* "[256, 64]" */
static void shape_text(const int64_t *shape, int32_t num_dims, char *out, size_t size)
{
    int n = snprintf(out, size, "[");
    for (int32_t i = 0; i < num_dims && n >= 0 && (size_t)n < size; i++) {
        n += snprintf(out + n, size - (size_t)n, "%s%lld", i ? ", " : "", (long long)shape[i]);
    }
    if (n >= 0 && (size_t)n < size) {
        snprintf(out + n, size - (size_t)n, "]");
    }
}

int fill_param(const struct param *p, const struct st_file *file, const struct st_tensor *t,
               void *flat, enum dtype dtype, struct error *err)
{
    bool same = t->num_dims == p->num_dims;
    for (int32_t i = 0; same && i < p->num_dims; i++) {
        same = t->shape[i] == p->shape[i];
    }
    if (!same) {
        char has[200], wants[120];
        shape_text(t->shape, t->num_dims, has, sizeof has);
        shape_text(p->shape, p->num_dims, wants, sizeof wants);
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: tensor \"%s\" is %s, the model wants %s",
                         st_file_path(file), t->name, has, wants);
    }
    size_t size = dtype_size(dtype);
    return st_read_elements(file, t, 0, p->numel, (char *)flat + (size_t)p->offset * size, size,
                            err);
}
