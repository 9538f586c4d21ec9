#include "runtime/ckpt/outline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The parameters lie in a row; a file has those whose middle lies in its share of the row. */
static int32_t file_of(int64_t numel, int64_t before, int64_t total, int32_t num_files)
{
    double middle = (double)before + (double)numel / 2;
    int32_t f = (int32_t)(middle / (double)total * num_files);
    return f < num_files ? f : num_files - 1;
}

static void add(struct outline *o, const struct ckpt_state *state, const struct param *p,
                const struct ckpt_part *part, const char *suffix)
{
    struct outline_line *line = &o->lines[o->num];
    struct st_tensor *t = &o->tensors[o->num++];
    line->param = p;
    line->part = part;
    snprintf(line->name, sizeof line->name, "%s%s", p->name, suffix);
    *t = (struct st_tensor){.name = line->name,
                            .dtype = state->dtype == DTYPE_F64 ? ST_F64 : ST_F32,
                            .num_dims = p->num_dims};
    memcpy(t->shape, p->shape, sizeof p->shape);
}

static void add_param(struct outline *o, const struct ckpt_state *state, const char *kind,
                      const struct param *p)
{
    if (strcmp(kind, PART_WEIGHTS) == 0) {
        add(o, state, p, &state->weights, "");
        return;
    }
    add(o, state, p, &state->exp_avg, PART_EXP_AVG);
    add(o, state, p, &state->exp_avg_sq, PART_EXP_AVG_SQ);
}

/* Monotone over the row, so those of a file lie side by side: first, and how many. */
static void find_params(const struct param_table *table, int32_t file, int32_t num_files,
                        int32_t *first, int32_t *num)
{
    int64_t total = 0, before = 0;
    for (int32_t i = 0; i < table->num_params; i++) {
        total += state_true_numel(&table->params[i]);
    }
    *first = *num = 0;
    for (int32_t i = 0; i < table->num_params; i++) {
        int64_t numel = state_true_numel(&table->params[i]);
        if (file_of(numel, before, total, num_files) == file) {
            *first = *num == 0 ? i : *first;
            ++*num;
        }
        before += numel;
    }
}

int outline_new(struct outline *out, const struct ckpt_state *state, const char *kind, int32_t file,
                int32_t num_files, struct error *err)
{
    int32_t first, num;
    find_params(state->table, file, num_files, &first, &num);
    size_t room = 2 * (size_t)num + 1;
    struct outline o = {.lines = calloc(room, sizeof *o.lines),
                        .tensors = calloc(room, sizeof *o.tensors)};
    if (!o.lines || !o.tensors) {
        outline_free(&o);
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory for a checkpoint's table");
    }
    for (int32_t i = first; i < first + num; i++) {
        add_param(&o, state, kind, &state->table->params[i]);
    }
    if (st_layout(o.tensors, o.num, NULL, &o.header, &o.header_len, &o.data_bytes, err) != 0) {
        outline_free(&o);
        return -1;
    }
    *out = o;
    return 0;
}

void outline_free(struct outline *o)
{
    free(o->lines);
    free(o->tensors);
    free(o->header);
    *o = (struct outline){0};
}

int64_t outline_numel(const struct outline *o)
{
    int64_t n = 0;
    for (int32_t i = 0; i < o->num; i++) {
        n += state_true_numel(o->lines[i].param);
    }
    return n;
}

static int count(void *arg, const struct state_run *run, struct error *err)
{
    (void)err;
    *(int64_t *)arg += run->numel;
    return 0;
}

int64_t outline_owned_numel(const struct outline *o, const struct ckpt_state *state)
{
    int64_t n = 0;
    for (int32_t i = 0; i < o->num; i++) {
        state_each_owned(state, o->lines[i].part, o->lines[i].param, count, &n, NULL);
    }
    return n;
}
