/* Faults of single matrices: the final norm's scale, a tied embedding, a vocabulary that doesn't
 * divide. */
#include "named.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/ckpt/safetensors.h"
#include "runtime/parallel/store.h"

struct final_norm {
    const struct whole_tensor *want;
    int num_ranks; /* that had it right */
    char fault[256];
};

static void look_at_final_norm(struct record *r, int32_t rank, const struct param_table *table,
                               const struct axes *axes, const struct store *store)
{
    struct final_norm *look = r->arg;
    struct store_view view = store_view(store, STORE_GRADS);
    const struct param *p = &table->params[params_find(table, look->want->name)];
    (void)axes;
    ASSERT(view.num_ranges >= 1 && p->numel == look->want->numel);
    double apart = 0.0, all = 0.0;
    for (int32_t k = 0; k < view.num_ranges; k++) {
        const struct flat_range *range = &view.ranges[k];
        for (int64_t i = 0; i < p->numel; i++) {
            int64_t flat = p->offset + i - range->begin;
            if (flat < 0 || flat >= range->numel)
                continue;
            double want = look->want->values[i];
            double got = ((const double *)view.data)[range->at + flat];
            apart += (got - want) * (got - want);
            all += want * want;
        }
    }
    pthread_mutex_lock(&r->grads.lock);
    if (all > 0.0 && sqrt(apart) <= NAMED_SAME * sqrt(all))
        look->num_ranks++;
    else
        snprintf(look->fault, sizeof(look->fault), "rank %d: %s is off by %.1e", rank, p->name,
                 sqrt(apart / all));
    pthread_mutex_unlock(&r->grads.lock);
}

static void check_final_norm(const struct shape *shape, const char *name, int64_t tensor)
{
    struct shape_files files;
    shape_write(&files, shape, NULL, NULL);
    struct variant v = {.data = 1, .tensor = tensor, .micro = 1, .sequence_parallel = true};
    struct gang_spec one_spec = named_spec(&files, &named_one_rank), spec = named_spec(&files, &v);
    struct run one, many;
    run_well(&one, &one_spec, NULL, "one rank");
    struct final_norm look = {.want = whole_find(&one.record.grads, name)};
    assert_non_null(look.want);
    run_prepare(&many, &spec);
    many.record.on_gradients = look_at_final_norm;
    many.record.arg = &look;
    run_go(&many, named_words(&v));
    if (look.num_ranks != tensor)
        fail_msg("%s, %s: %s", shape->family, named_words(&v), look.fault);
    run_free(&many);
    run_free(&one);
    shape_remove(&files);
}

/* 1. Each tensor rank norms its own rows: the gradient of the scale is a part there, and its sum
 * belongs on every rank. */
void the_final_norms_gradient_under_sequence_parallel_is_whole_on_every_rank(void **state)
{
    (void)state;
    check_final_norm(&shapes[0], "model.norm.weight", 3);
    check_final_norm(&shapes[1], "model.norm.weight", 4);
    check_final_norm(&shapes[2], "model.norm.weight", 5);
    check_final_norm(&shapes[3], "transformer.ln_f.bias", 6);
}

static double head_like_embedding(void *arg, const char *name, int64_t idx, bool norm)
{
    (void)arg;
    bool head = strcmp(name, "lm_head.weight") == 0;
    return shape_draw(NULL, head ? "model.embed_tokens.weight" : name, idx, norm);
}

/* The gradients of the two uses of the matrix, from a model that has it twice. */
static void add_both_uses(const struct shape *tied, struct whole_tensor *out)
{
    struct shape untied = *tied;
    struct shape_files files;
    struct run r;
    untied.tied = false;
    shape_write(&files, &untied, head_like_embedding, NULL);
    struct gang_spec spec = named_spec(&files, &named_one_rank);
    run_well(&r, &spec, NULL, "two matrices");
    *out = *whole_find(&r.record.grads, "model.embed_tokens.weight");
    const struct whole_tensor *head = whole_find(&r.record.grads, "lm_head.weight");
    double *sum = malloc((size_t)out->numel * sizeof(*sum));
    assert_non_null(sum);
    for (int64_t i = 0; i < out->numel; i++)
        sum[i] = out->values[i] + head->values[i];
    out->values = sum;
    run_free(&r);
    shape_remove(&files);
}

static void check_both_uses(const struct shape_files *files, const struct variant *v,
                            const struct whole_tensor *want)
{
    struct gang_spec spec = named_spec(files, v);
    struct run r;
    double apart = 0.0, all = 0.0;
    run_well(&r, &spec, NULL, named_words(v));
    const struct whole_tensor *got = whole_find(&r.record.grads, want->name);
    for (int64_t i = 0; i < want->numel; i++) {
        apart += pow(got->values[i] - want->values[i], 2);
        all += pow(want->values[i], 2);
    }
    if (!(sqrt(apart) <= NAMED_SAME * sqrt(all)))
        fail_msg("%s: the tied embedding's gradient is off by %.1e", named_words(v),
                 sqrt(apart / all));
    run_free(&r);
}

/* 24. A tied embedding gets a gradient from the head and one from the tokens; its bucket is summed
 * over the ranks when it has both, and once. */
void a_matrix_used_twice_gets_both_gradients_once(void **state)
{
    (void)state;
    static const struct variant variants[] = {
        {.data = 1, .tensor = 1, .micro = 3},
        {.data = 3, .tensor = 1, .micro = 5},
        {.data = 3, .tensor = 1, .micro = 10, .zero_stage = 1},
        {.data = 2, .tensor = 1, .micro = 5, .zero_stage = 2},
        {.data = 6, .tensor = 1, .micro = 1, .zero_stage = 2, .shard_size = 3},
        {.data = 3, .tensor = 1, .micro = 2, .zero_stage = 3},
        {.data = 6, .tensor = 1, .micro = 5, .zero_stage = 3, .shard_size = 2},
        {.data = 1, .tensor = 5, .micro = 6},
        {.data = 2, .tensor = 10, .micro = 3, .zero_stage = 3, .sequence_parallel = true},
    };
    const struct shape *shape = &shapes[2];
    struct shape_files files;
    struct whole_tensor want;
    add_both_uses(shape, &want);
    shape_write(&files, shape, NULL, NULL);
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++)
        check_both_uses(&files, &variants[i], &want);
    free(want.values);
    shape_remove(&files);
}

/* The exported matrix is the one that the ranks hold, row for row. */
static void check_exported(const struct run *r, const char *job_dir, const char *name)
{
    char path[512];
    struct error err = {0};
    struct st_file *file;
    snprintf(path, sizeof(path), "%s/export/model.safetensors", job_dir);
    if (st_open(&file, NULL, path, &err) != 0)
        fail_msg("%s", err.text);
    const struct st_tensor *t = st_header_find(st_file_header(file), name);
    const struct whole_tensor *held = whole_find(&r->record.weights, name);
    double *values = malloc((size_t)held->numel * sizeof(*values));
    assert_non_null(values);
    assert_non_null(t);
    assert_int_equal(t->num_dims, 2);
    assert_int_equal(t->shape[0], 331);
    if (st_read_elements(file, t, 0, held->numel, values, sizeof(*values), &err) != 0)
        fail_msg("%s", err.text);
    for (int64_t i = 0; i < held->numel; i++)
        if (fabs(values[i] - held->values[i]) > 1e-7 * fabs(held->values[i]))
            fail_msg("%s: element %lld is %g in the export, %g on the ranks", name, (long long)i,
                     values[i], held->values[i]);
    free(values);
    st_close(file);
}

/* 32. 331 rows over 2 and 4 ranks: padded ones count in no sum, and are written nowhere. */
void a_vocabulary_that_tensor_ranks_dont_divide_keeps_its_rows(void **state)
{
    (void)state;
    static const struct variant variants[] = {
        {.data = 1, .tensor = 2, .micro = 1},
        {.data = 1, .tensor = 4, .micro = 2, .sequence_parallel = true},
        {.data = 2, .tensor = 4, .micro = 1, .zero_stage = 3},
    };
    struct shape shape = shapes[0];
    struct shape_files files;
    struct run one;
    shape.heads = 4;
    shape.kv_heads = 2;
    shape_write(&files, &shape, NULL, NULL);
    struct gang_spec spec = named_spec(&files, &named_one_rank);
    run_well(&one, &spec, NULL, "one rank");
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        char *dir = gang_make_dir();
        struct run r;
        spec = named_spec(&files, &variants[i]);
        spec.checkpoint = "interval: 0, export_at_end: true";
        run_well(&r, &spec, dir, named_words(&variants[i]));
        named_check_first_step(named_words(&variants[i]), &one, &r);
        check_exported(&r, dir, "lm_head.weight");
        check_exported(&r, dir, "model.embed_tokens.weight");
        run_free(&r);
        gang_remove_dir(dir);
    }
    run_free(&one);
    shape_remove(&files);
}
