/* plan/pieces.h: the pieces of all tensor ranks put together are the whole tensor, each element
 * once, for every parameter of every family. */
#include "plan/pieces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/family.h"

/* All factors small and odd ones among them: heads, KV heads, widths and a vocabulary that no
 * number of ranks divides. */
static ModelConfig small_config(const char *family, int64_t heads, int64_t kv_heads)
{
    ModelConfig c = MODEL_CONFIG__INIT;
    c.model_type = (char *)(uintptr_t)family;
    c.num_hidden_layers = 1;
    c.num_attention_heads = heads;
    c.num_key_value_heads = kv_heads;
    c.head_dim = 2;
    c.hidden_size = heads * 2;
    c.intermediate_size = 30;
    c.vocab_size = 331;
    c.max_position_embeddings = 7;
    c.num_experts = 3;
    c.num_experts_per_tok = 2;
    c.moe_intermediate_size = 10;
    return c;
}

/* Table and definitions of a model of one stage on `tensor` ranks; the caller frees both. */
static void expand(ModelConfig *config, int64_t tensor, struct arena *arena,
                   struct param_table *table)
{
    ModelFacts facts = MODEL_FACTS__INIT;
    Stage stage = STAGE__INIT, *stages[] = {&stage};
    Mesh mesh = MESH__INIT;
    Plan plan = PLAN__INIT;
    struct error err = {0};
    facts.config = config;
    stage.layer_end = config->num_hidden_layers;
    mesh.tensor = mesh.num_ranks = tensor;
    plan.model = &facts;
    plan.mesh = &mesh;
    plan.stages = stages;
    plan.n_stages = 1;
    if (family_find(config->model_type)
                ->params(config, arena, &plan.params, &plan.n_params, &err) != 0 ||
        params_expand(&plan, 0, table, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

/* ---- what is covered ---------------------------------------------------------------------------
 */

struct cover {
    int64_t whole_numel, local_numel;
    int64_t *local_of; /* by whole element, of the last rank looked at; -1 = not there */
    int *counted;      /* by whole element: how often */
    int64_t num, next_local;
};

static int64_t true_numel(const struct param *p)
{
    int64_t n = 1;
    for (int32_t i = 0; i < p->num_dims; i++) {
        n *= p->shape[i];
    }
    return n;
}

static int look(void *arg, const struct piece *piece, struct error *err)
{
    struct cover *c = arg;
    (void)err;
    assert_true(piece->numel > 0);
    assert_true(piece->local >= c->next_local);
    assert_true(piece->local + piece->numel <= c->local_numel);
    assert_true(piece->whole >= 0 && piece->whole + piece->numel <= c->whole_numel);
    for (int64_t i = 0; i < piece->numel; i++) {
        assert_int_equal(c->local_of[piece->whole + i], -1);
        c->local_of[piece->whole + i] = piece->local + i;
    }
    c->num += piece->numel;
    c->next_local = piece->local + piece->numel;
    return 0;
}

static void cover_rank(struct cover *c, const struct param *p, int64_t size, int64_t idx,
                       int64_t begin, int64_t end)
{
    for (int64_t i = 0; i < c->whole_numel; i++) {
        c->local_of[i] = -1;
    }
    c->num = 0;
    c->next_local = begin;
    assert_int_equal(pieces_each(p, size, idx, begin, end, look, c, NULL), 0);
    assert_true(c->next_local <= (begin > end ? begin : end));
}

/* By hand, from coordinates: where whole element e of p lies on rank idx; -1 = not there. The rule
 * a second time, element by element. */
static int64_t local_by_hand(const struct param *p, int64_t size, int64_t idx, int64_t e)
{
    int64_t at[PARAM_DIMS_MAX], local = 0;
    for (int32_t d = p->num_dims - 1; d >= 0; d--) {
        at[d] = e % p->shape[d];
        e /= p->shape[d];
    }
    for (int32_t d = 0; d < p->num_dims; d++) {
        int64_t i = at[d];
        if (p->tensor_shard && size > 1 && d == p->shard_dim) {
            int64_t block = p->shape[d] / p->shard_groups;
            int64_t parts = p->shard_parts ? p->shard_parts : block, width = block / parts;
            int64_t room = (parts + size - 1) / size, part = i % block / width;
            bool repeated = p->shard_parts && p->shard_parts < size;
            int64_t first = repeated ? idx * parts / size : idx * room;
            if (part < first || part >= first + room) {
                return -1;
            }
            i = i / block * room * width + (part - first) * width + i % width;
        }
        local = local * p->local_shape[d] + i;
    }
    return local;
}

static struct cover cover_new(const struct param *p)
{
    struct cover c = {.whole_numel = true_numel(p), .local_numel = p->numel};
    c.local_of = calloc((size_t)c.whole_numel, sizeof *c.local_of);
    c.counted = calloc((size_t)c.whole_numel, sizeof *c.counted);
    assert_true(c.local_of && c.counted);
    return c;
}

static void cover_free(struct cover *c)
{
    free(c->local_of);
    free(c->counted);
}

static void check_param(const struct param *p, int64_t size)
{
    struct cover c = cover_new(p);
    for (int64_t idx = 0; idx < size; idx++) {
        cover_rank(&c, p, size, idx, 0, p->numel);
        bool counted = pieces_counted(p, size, idx);
        for (int64_t e = 0; e < c.whole_numel; e++) {
            assert_int_equal(c.local_of[e], local_by_hand(p, size, idx, e));
            c.counted[e] += counted && c.local_of[e] >= 0;
        }
    }
    for (int64_t e = 0; e < c.whole_numel; e++) {
        assert_int_equal(c.counted[e], 1);
    }
    cover_free(&c);
}

/* ---- tests -------------------------------------------------------------------------------------
 */

/* One config each where the KV heads are all, some, or fewer than the ranks. */
static const struct {
    const char *family;
    int64_t heads, kv_heads;
} shapes[] = {{"llama", 12, 12}, {"llama", 6, 3},  {"llama", 8, 2},      {"qwen2", 8, 1},
              {"qwen3", 12, 4},  {"gpt2", 12, 12}, {"qwen3_moe", 12, 2}, {"mixtral", 6, 2}};
#define NUM_SHAPES (sizeof shapes / sizeof shapes[0])

static void every_element_of_every_family_is_counted_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < NUM_SHAPES; i++) {
        for (int64_t size = 1; size <= 8; size++) {
            ModelConfig config =
                small_config(shapes[i].family, shapes[i].heads, shapes[i].kv_heads);
            struct arena arena = {0};
            struct param_table table;
            expand(&config, size, &arena, &table);
            assert_true(table.num_params > 5);
            for (int32_t k = 0; k < table.num_params; k++) {
                check_param(&table.params[k], size);
            }
            params_free(&table);
            arena_free(&arena);
        }
    }
}

/* A vocabulary of 331 over 4: 83 rows each, the last rank's 83rd is padding and lies nowhere. */
static void padded_rows_lie_nowhere(void **state)
{
    (void)state;
    ModelConfig config = small_config("llama", 4, 4);
    struct arena arena = {0};
    struct param_table table;
    expand(&config, 4, &arena, &table);
    const struct param *p = &table.params[params_find(&table, "lm_head.weight")];
    assert_int_equal(p->local_shape[0], 83);
    struct cover c = cover_new(p);
    cover_rank(&c, p, 4, 0, 0, p->numel);
    assert_int_equal(c.num, 83 * 8);
    cover_rank(&c, p, 4, 3, 0, p->numel);
    assert_int_equal(c.num, 82 * 8);
    assert_int_equal(c.local_of[330 * 8 + 7], 81 * 8 + 7);
    cover_rank(&c, p, 4, 3, 82 * 8, 83 * 8);
    assert_int_equal(c.num, 0);
    cover_free(&c);
    params_free(&table);
    arena_free(&arena);
}

/* A vocabulary smaller than the number of ranks: the last ones have padding alone. */
static void a_rank_may_hold_nothing_but_padding(void **state)
{
    (void)state;
    ModelConfig config = small_config("llama", 8, 8);
    config.vocab_size = 3;
    struct arena arena = {0};
    struct param_table table;
    expand(&config, 8, &arena, &table);
    const struct param *p = &table.params[params_find(&table, "lm_head.weight")];
    assert_int_equal(p->numel, 16);
    struct cover c = cover_new(p);
    for (int64_t idx = 0; idx < 8; idx++) {
        cover_rank(&c, p, 8, idx, 0, p->numel);
        assert_int_equal(c.num, idx < 3 ? 16 : 0);
    }
    check_param(p, 8);
    cover_free(&c);
    params_free(&table);
    arena_free(&arena);
}

/* q, k and v in one matrix of [in, 3 x out]: each is cut by itself, so a rank has the same heads of
 * all three, side by side. */
static void the_three_groups_of_a_fused_matrix_are_cut_alike(void **state)
{
    (void)state;
    struct param p = {.num_dims = 2,
                      .shape = {2, 12},
                      .local_shape = {2, 6},
                      .numel = 12,
                      .tensor_shard = true,
                      .shard_dim = 1,
                      .shard_parts = 2,
                      .shard_groups = 3};
    struct cover c = cover_new(&p);
    cover_rank(&c, &p, 2, 1, 0, p.numel);
    static const int64_t columns[] = {2, 3, 6, 7, 10, 11};
    for (int64_t row = 0; row < 2; row++) {
        for (int64_t i = 0; i < 6; i++) {
            assert_int_equal(c.local_of[row * 12 + columns[i]], row * 6 + i);
        }
    }
    assert_int_equal(c.num, 12);
    cover_free(&c);
    /* Any number of ranks, also where the parts are fewer, or don't come out even. */
    for (int64_t parts = 0; parts <= 4; parts += 2) {
        for (int64_t size = 1; size <= 8; size++) {
            int64_t n = parts ? parts : 4;
            p.shard_parts = parts;
            p.local_shape[1] = size == 1 ? 12 : 3 * ((n + size - 1) / size) * (4 / n);
            p.numel = 2 * p.local_shape[1];
            check_param(&p, size);
        }
    }
}

/* A KV head on several ranks is the same piece on each; the first of them counts it. */
static void a_head_on_several_ranks_is_counted_by_the_first(void **state)
{
    (void)state;
    struct param p = {.num_dims = 1,
                      .shape = {6},
                      .local_shape = {3},
                      .numel = 3,
                      .tensor_shard = true,
                      .shard_parts = 2,
                      .shard_groups = 1};
    struct cover c = cover_new(&p);
    for (int64_t idx = 0; idx < 6; idx++) {
        cover_rank(&c, &p, 6, idx, 0, p.numel);
        assert_int_equal(c.num, 3);
        assert_int_equal(c.local_of[idx / 3 * 3], 0);
        assert_true(pieces_counted(&p, 6, idx) == (idx % 3 == 0));
    }
    cover_free(&c);
    p.tensor_shard = false;
    p.local_shape[0] = p.numel = 6;
    for (int64_t idx = 0; idx < 6; idx++) {
        assert_true(pieces_counted(&p, 6, idx) == (idx == 0));
    }
}

/* What shards of a flat buffer do: any cut of the local elements gives the pieces of the whole,
 * cut. */
static void pieces_of_ranges_add_up_to_the_pieces_of_all(void **state)
{
    (void)state;
    static const int64_t steps[] = {1, 3, 16, 50};
    ModelConfig config = small_config("gpt2", 6, 6);
    struct arena arena = {0};
    struct param_table table;
    expand(&config, 3, &arena, &table);
    for (int32_t k = 0; k < table.num_params; k++) {
        const struct param *p = &table.params[k];
        struct cover all = cover_new(p), some = cover_new(p);
        for (int64_t idx = 0; idx < 3; idx++) {
            cover_rank(&all, p, 3, idx, 0, p->numel);
            for (size_t s = 0; s < 4; s++) {
                int64_t num = 0;
                bool skipped = false;
                for (int64_t at = 0; at < p->numel; at += steps[s]) {
                    int64_t end = at + steps[s] < p->numel ? at + steps[s] : p->numel;
                    /* Bounded work: the sweep of single elements looks at the first ones only. */
                    if (at > 64 * steps[s] && end < p->numel) {
                        skipped = true;
                        continue;
                    }
                    cover_rank(&some, p, 3, idx, at, end);
                    num += some.num;
                    for (int64_t e = 0; e < all.whole_numel; e++) {
                        int64_t local = all.local_of[e];
                        assert_int_equal(some.local_of[e], local >= at && local < end ? local : -1);
                    }
                }
                assert_true(skipped ? num <= all.num : num == all.num);
            }
            cover_rank(&some, p, 3, idx, 5, 5);
            assert_int_equal(some.num, 0);
        }
        cover_free(&all);
        cover_free(&some);
    }
    params_free(&table);
    arena_free(&arena);
}

static int fail_third(void *arg, const struct piece *piece, struct error *err)
{
    (void)piece;
    return ++*(int *)arg == 3 ? error_set(err, ERR_UNAVAILABLE, "third") : 0;
}

static void a_piece_that_fails_ends_the_walk(void **state)
{
    (void)state;
    struct param p = {.num_dims = 2,
                      .shape = {9, 4},
                      .local_shape = {9, 2},
                      .numel = 18,
                      .tensor_shard = true,
                      .shard_dim = 1,
                      .shard_groups = 1};
    struct error err = {0};
    int calls = 0;
    assert_int_equal(pieces_each(&p, 2, 0, 0, p.numel, fail_third, &calls, &err), -1);
    assert_int_equal(calls, 3);
    assert_string_equal(err.text, "third");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_of_every_family_is_counted_once),
        cmocka_unit_test(padded_rows_lie_nowhere),
        cmocka_unit_test(a_rank_may_hold_nothing_but_padding),
        cmocka_unit_test(the_three_groups_of_a_fused_matrix_are_cut_alike),
        cmocka_unit_test(a_head_on_several_ranks_is_counted_by_the_first),
        cmocka_unit_test(pieces_of_ranges_add_up_to_the_pieces_of_all),
        cmocka_unit_test(a_piece_that_fails_ends_the_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
