#include "runtime/ckpt/fill.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES (256 << 10)
#define GAP_BYTES (16 << 10)
#define RUNS_MAX 1024

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

int fill_check_shape(const struct param *p, const struct st_file *file, const struct st_tensor *t,
                     struct error *err)
{
    bool same = t->num_dims == p->num_dims;
    for (int32_t i = 0; same && i < p->num_dims; i++) {
        same = t->shape[i] == p->shape[i];
    }
    if (same) {
        return 0;
    }
    char has[200], wants[120];
    shape_text(t->shape, t->num_dims, has, sizeof has);
    shape_text(p->shape, p->num_dims, wants, sizeof wants);
    return error_set(err, ERR_INVALID_ARGUMENT, "%s: tensor \"%s\" is %s, the model wants %s",
                     st_file_path(file), t->name, has, wants);
}

/* Short runs near each other (a column cut has one for each row) are read in one go. */
struct fill {
    const struct ckpt_state *state;
    const struct ckpt_part *part;
    const struct st_file *file;
    const struct st_tensor *tensor;
    struct state_run runs[RUNS_MAX];
    int32_t num;
    _Alignas(16) char chunk[CHUNK_BYTES];
};

static int read_straight(const struct fill *f, const struct state_run *run, struct error *err)
{
    return st_read_elements(f->file, f->tensor, run->whole, run->numel,
                            state_at(f->state, f->part, run->at), dtype_size(f->state->dtype), err);
}

/* Reads the runs that were put together. */
static int flush(struct fill *f, struct error *err)
{
    int32_t num = f->num;
    f->num = 0;
    if (num <= 1) {
        return num == 0 ? 0 : read_straight(f, &f->runs[0], err);
    }
    size_t size = dtype_size(f->state->dtype);
    int64_t begin = f->runs[0].whole, end = f->runs[num - 1].whole + f->runs[num - 1].numel;
    if (st_read_elements(f->file, f->tensor, begin, end - begin, f->chunk, size, err) != 0) {
        return -1;
    }
    for (int32_t i = 0; i < num; i++) {
        memcpy(state_at(f->state, f->part, f->runs[i].at),
               f->chunk + (size_t)(f->runs[i].whole - begin) * size,
               (size_t)f->runs[i].numel * size);
    }
    return 0;
}

static int add_run(void *arg, const struct state_run *run, struct error *err)
{
    struct fill *f = arg;
    int64_t size = (int64_t)dtype_size(f->state->dtype);
    if (f->num > 0) {
        const struct state_run *last = &f->runs[f->num - 1];
        int64_t gap = run->whole - (last->whole + last->numel);
        int64_t span = run->whole + run->numel - f->runs[0].whole;
        if ((f->num == RUNS_MAX || gap < 0 || gap * size > GAP_BYTES ||
             span * size > CHUNK_BYTES) &&
            flush(f, err) != 0) {
            return -1;
        }
    }
    if (run->numel * size > CHUNK_BYTES) {
        return read_straight(f, run, err);
    }
    f->runs[f->num++] = *run;
    return 0;
}

int fill_param(const struct ckpt_state *s, const struct ckpt_part *part, const struct param *p,
               const struct st_file *file, const struct st_tensor *t, struct error *err)
{
    if (fill_check_shape(p, file, t, err) != 0) {
        return -1;
    }
    struct fill *f = malloc(sizeof *f);
    if (!f) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", st_file_path(file));
    }
    f->state = s;
    f->part = part;
    f->file = file;
    f->tensor = t;
    f->num = 0;
    int rc = state_each(s, part, p, add_run, f, err);
    if (rc == 0) {
        rc = flush(f, err);
    }
    free(f);
    return rc;
}
