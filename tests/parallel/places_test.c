/* What stands for where a pass reads its weights and writes its gradients (model_places): it
 * changes when one of these moves, and when nothing else does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gang.h"
#include "runtime/layers/model.h"

struct side {
    Plan *plan;
    struct param_table table;
    struct device *dev;
    struct stream *stream;
    struct model *model;
    char *somewhere; /* enough places for two bindings of each bucket */
};

static void side_open(struct side *s, const struct golden *golden)
{
    *s = (struct side){0};
    struct error err = {0};
    const struct kernels *k = NULL;
    const struct gang_spec spec = {.golden = golden, .bucket_mb = "0.01"};
    s->plan = gang_plan(&spec);
    if (params_expand(s->plan, 0, &s->table, &err) != 0 ||
        kernels_open(&(struct kernels_options){"ref", 1, 0}, &s->dev, &k, &err) != 0 ||
        s->dev->ops->stream_new(s->dev, STREAM_INLINE, &s->stream, &err) != 0)
        fail_msg("%s", err.text);
    const struct model_options options = {.config = s->plan->model->config,
                                          .table = &s->table,
                                          .dtype = DTYPE_F64,
                                          .micro_batch_size = 1,
                                          .seq_len = golden->seq_len,
                                          .dev = s->dev,
                                          .kernels = k,
                                          .stream = s->stream,
                                          .trains = true};
    if (model_new(&s->model, &options, &err) != 0)
        fail_msg("%s", err.text);
    s->somewhere = malloc(4 * (size_t)s->table.num_buckets);
    assert_non_null(s->somewhere);
}

static void side_close(struct side *s)
{
    model_free(s->model);
    s->dev->ops->stream_free(s->dev, s->stream);
    s->dev->ops->close(s->dev);
    params_free(&s->table);
    plan__free_unpacked(s->plan, NULL);
    free(s->somewhere);
}

static void bind_all(struct side *s)
{
    for (int32_t b = 0; b < s->table.num_buckets; b++) {
        model_bind_weights(s->model, b, s->somewhere + 4 * b);
        model_bind_grads(s->model, b, s->somewhere + 4 * b + 1);
    }
}

/* A tied embedding lies with unit 0, and the head reads it, too. */
static bool uses(const struct side *s, int32_t unit, int32_t num_units, int32_t bucket)
{
    for (int32_t i = 0; i < s->table.num_params; i++) {
        const struct param *p = &s->table.params[i];
        if (p->bucket == bucket && (p->unit == unit || (p->tied && unit == num_units - 1)))
            return true;
    }
    return false;
}

static void check_model(const struct golden *golden)
{
    struct side s;
    side_open(&s, golden);
    int32_t num_units = (int32_t)s.plan->model->config->num_hidden_layers + 2;
    assert_true(s.table.num_buckets > 2);
    for (int32_t b = 0; b < 2 * s.table.num_buckets; b++) {
        for (int32_t u = 0; u < num_units; u++) {
            bind_all(&s);
            uint64_t before = model_places(s.model, u, u + 1);
            if (b % 2 == 0)
                model_bind_weights(s.model, b / 2, s.somewhere + 2 * b + 2);
            else
                model_bind_grads(s.model, b / 2, NULL);
            bool changed = model_places(s.model, u, u + 1) != before;
            assert_int_equal(changed, uses(&s, u, num_units, b / 2));
            bind_all(&s);
            assert_true(model_places(s.model, u, u + 1) == before);
        }
    }
    side_close(&s);
}

static void places_follow_what_a_pass_uses(void **state)
{
    (void)state;
    check_model(&golden_tiny);
    check_model(&golden_tied);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_follow_what_a_pass_uses),
    };
    gang_quiet();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
