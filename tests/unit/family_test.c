/* Parameter tables and FLOPs of families against counts made by hand and public figures. */
#include "model/family.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static ModelConfig llama(int64_t layers, int64_t d, int64_t f, int64_t h, int64_t kv, int64_t v)
{
    ModelConfig c = MODEL_CONFIG__INIT;
    c.model_type = "llama";
    c.num_hidden_layers = layers;
    c.hidden_size = d;
    c.intermediate_size = f;
    c.num_attention_heads = h;
    c.num_key_value_heads = kv;
    c.head_dim = d / h;
    c.vocab_size = v;
    return c;
}

/* Published sizes of Llama 3. */
static void llama3_has_its_published_parameters(void **state)
{
    (void)state;
    ModelConfig c8 = llama(32, 4096, 14336, 32, 8, 128256);
    ModelConfig c70 = llama(80, 8192, 28672, 64, 8, 128256);
    ModelConfig c405 = llama(126, 16384, 53248, 128, 8, 128256);
    assert_int_equal(family_num_params(&c8), 8030261248);
    assert_int_equal(family_num_params(&c70), 70553706496);
    assert_int_equal(family_num_params(&c405), 405853388800);
    assert_int_equal(family_num_units(&c405), 128);
}

/* A tied head is the embedding: counted once, no line of its own. */
static void a_tied_head_has_no_parameters_of_its_own(void **state)
{
    (void)state;
    ModelConfig c = llama(3, 64, 160, 4, 2, 277);
    int64_t untied = family_num_params(&c);
    c.tie_word_embeddings = 1;
    assert_int_equal(untied - family_num_params(&c), 277 * 64);
    struct arena arena = {0};
    ParamDef **defs;
    size_t num;
    assert_int_equal(family_find("llama")->params(&c, &arena, &defs, &num, NULL), 0);
    assert_int_equal(num, 11);
    assert_true(defs[0]->tied);
    assert_string_equal(defs[num - 1]->name, "model.norm.weight");
    arena_free(&arena);
}

/* Weight decay and tensor spread follow from what a tensor is. */
static void the_table_says_how_each_parameter_lies(void **state)
{
    (void)state;
    ModelConfig c = llama(2, 64, 136, 8, 4, 256);
    struct arena arena = {0};
    ParamDef **defs;
    size_t num;
    assert_int_equal(family_find("llama")->params(&c, &arena, &defs, &num, NULL), 0);
    assert_int_equal(num, 12);
    for (size_t i = 0; i < num; i++) {
        bool norm = strstr(defs[i]->name, "norm") != NULL;
        bool columns = strstr(defs[i]->name, "o_proj") || strstr(defs[i]->name, "down_proj");
        assert_int_equal(defs[i]->decay, !norm);
        assert_int_equal(defs[i]->init_ones, norm);
        assert_int_equal(defs[i]->n_shape, norm ? 1 : 2);
        assert_int_equal(defs[i]->tensor_spread, norm ? SPREAD_REPLICATE : SPREAD_SHARD);
        assert_int_equal(defs[i]->shard_dim, columns ? 1 : 0);
    }
    char name[64];
    assert_true(family_param_name(defs[3], 11, name, sizeof name));
    assert_string_equal(name, "model.layers.11.self_attn.k_proj.weight");
    assert_int_equal(defs[3]->shape[0], 32);
    assert_int_equal(defs[3]->shape[1], 64);
    assert_false(family_param_name(defs[3], 11, name, 16));
    arena_free(&arena);
}

/* llama-tiny (tests/golden): D 64, F 136, H 8, K 4, head 8, V 256, L 2, T = 12.
 * A layer's products: q and o 2 * 64 * 64, k and v 2 * 32 * 64, MLP 3 * 136 * 64 = 38,400; two of
 * them and the head 256 * 64 are 93,184. Attention: L 2 * H 8 * (8 + 8) * 6.5. */
static void flops_a_token_equal_a_count_by_hand(void **state)
{
    (void)state;
    ModelConfig c = llama(2, 64, 136, 8, 4, 256);
    assert_int_equal(family_find("llama")->matmul_params(&c), 93184);
    double by_hand = 6.0 * 93184 + 6.0 * 2 * 8 * 16 * 6.5;
    assert_true(family_flops_per_token(&c, 6.5) == by_hand);
    /* llama-tied: the head counts once although it has no weights of its own. */
    c = llama(3, 64, 160, 4, 2, 277);
    c.tie_word_embeddings = 1;
    assert_int_equal(family_find("llama")->matmul_params(&c), 3 * (12288 + 30720) + 277 * 64);
}

/* The 6 N rule: for a large model and a short context, FLOPs a token are 6 N within a few percent;
 * Llama-3-405B on 15.6e12 tokens takes 3.8e25. */
static void large_models_follow_the_six_n_rule(void **state)
{
    (void)state;
    ModelConfig c = llama(126, 16384, 53248, 128, 8, 128256);
    double flops = family_flops_per_token(&c, (8192 + 1) / 2.0);
    double six_n = 6.0 * 405853388800.0;
    assert_true(flops / six_n > 0.99 && flops / six_n < 1.1);
    assert_true(flops * 15.6e12 > 3.75e25 && flops * 15.6e12 < 4.2e25);
}

/* Llama, a token and layer: 4 D + 2 H dh + 2 K dh + 3 F activations (bytes in bf16: twice that, as
 * the closed form has it), H log-sum-exps and two norm statistics. */
static void saved_tensors_add_up_to_the_closed_form(void **state)
{
    (void)state;
    ModelConfig c = llama(32, 4096, 14336, 32, 8, 128256);
    struct family_saved saved[FAMILY_SAVED_MAX];
    size_t num = family_find("llama")->saved(&c, FAMILY_FUSED, saved);
    int64_t activations = 0, stats = 0;
    for (size_t i = 0; i < num; i++) {
        *(saved[i].stat ? &stats : &activations) += saved[i].width;
    }
    assert_int_equal(2 * activations, 8 * 4096 + 4 * 32 * 128 + 4 * 8 * 128 + 6 * 14336);
    assert_int_equal(stats, 32 + 2);
    assert_int_equal(family_saved_per_token(&c), activations + stats);
}

/* Published sizes: Mixtral-8x7B 46.7e9 and 12.9e9 that one token uses; Qwen3-30B-A3B 30.5e9 and
 * 3.3e9; GPT-2 124,439,808; Qwen2-7B 7,615,616,512; Qwen3-8B 8,190,735,360. */
static void other_families_have_their_published_parameters(void **state)
{
    (void)state;
    ModelConfig c = llama(32, 4096, 14336, 32, 8, 32000);
    c.model_type = "mixtral";
    c.num_experts = 8;
    c.num_experts_per_tok = 2;
    c.moe_intermediate_size = 14336;
    assert_int_equal(family_num_params(&c), 46702792704);
    assert_int_equal(family_num_active_params(&c) / 100000000, 128);
    c = llama(48, 2048, 6144, 32, 4, 151936);
    c.model_type = "qwen3_moe";
    c.head_dim = 128;
    c.num_experts = 128;
    c.num_experts_per_tok = 8;
    c.moe_intermediate_size = 768;
    assert_int_equal(family_num_params(&c), 30532122624);
    assert_int_equal(family_num_active_params(&c) / 10000000, 335);
    c = llama(12, 768, 3072, 12, 12, 50257);
    c.model_type = "gpt2";
    c.max_position_embeddings = 1024;
    c.tie_word_embeddings = 1;
    assert_int_equal(family_num_params(&c), 124439808);
    c = llama(28, 3584, 18944, 28, 4, 152064);
    c.model_type = "qwen2";
    assert_int_equal(family_num_params(&c), 7615616512);
    c = llama(36, 4096, 12288, 32, 8, 151936);
    c.model_type = "qwen3";
    c.head_dim = 128;
    assert_int_equal(family_num_params(&c), 8190735360);
}

/* FLOPs count the experts that a token uses, and the router. */
static void flops_count_active_experts(void **state)
{
    (void)state;
    ModelConfig c = llama(32, 4096, 14336, 32, 8, 32000);
    c.model_type = "mixtral";
    c.num_experts = 8;
    c.num_experts_per_tok = 2;
    c.moe_intermediate_size = 14336;
    int64_t products = family_find("mixtral")->matmul_params(&c);
    /* All that a token uses, without the input embedding and the norms. */
    int64_t norms = (2 * 32 + 1) * 4096;
    assert_int_equal(products, family_num_active_params(&c) - 32000 * 4096 - norms);
    c.num_experts = 16;
    int64_t routers = 32LL * 8 * 4096;
    assert_int_equal(family_find("mixtral")->matmul_params(&c), products + routers);
}

/* The defs of a family; in arena memory. */
static size_t table_of(const char *model_type, struct arena *arena, ParamDef ***defs)
{
    ModelConfig c = llama(2, 64, 136, 8, 4, 256);
    c.model_type = (char *)(uintptr_t)model_type;
    c.num_experts = 4;
    c.num_experts_per_tok = 2;
    c.moe_intermediate_size = 32;
    c.max_position_embeddings = 128;
    size_t num;
    assert_int_equal(family_find(model_type)->params(&c, arena, defs, &num, NULL), 0);
    return num;
}

/* Layers find parameters by their roles, so each has one and no two of a table have the same. What
 * is cut over the tensor axis acts on no rows of the residual stream, and norms and the biases of
 * row-parallel layers do. */
static void each_parameter_has_a_role_of_its_own(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "qwen2", "qwen3", "mixtral", "qwen3_moe", "gpt2"};
    for (size_t f = 0; f < sizeof names / sizeof names[0]; f++) {
        struct arena arena = {0};
        ParamDef **defs;
        size_t num = table_of(names[f], &arena, &defs);
        bool seen[64] = {false};
        for (size_t i = 0; i < num; i++) {
            assert_true(defs[i]->role > ROLE_NONE && defs[i]->role < 64);
            assert_false(seen[defs[i]->role]);
            seen[defs[i]->role] = true;
            bool head_norm = defs[i]->role == ROLE_Q_NORM || defs[i]->role == ROLE_K_NORM;
            assert_int_equal(defs[i]->tensor_grad == SPREAD_PARTIAL, head_norm);
            assert_int_equal(defs[i]->on_rows,
                             defs[i]->tensor_spread != SPREAD_SHARD && !head_norm);
        }
        assert_true(seen[ROLE_EMBED] && seen[ROLE_ATTN_NORM] && seen[ROLE_O]);
        assert_int_equal(seen[ROLE_QKV], strcmp(names[f], "gpt2") == 0);
        arena_free(&arena);
    }
}

static const ParamDef *with_role(ParamDef **defs, size_t num, ParamRole role)
{
    for (size_t i = 0; i < num; i++) {
        if (defs[i]->role == role) {
            return defs[i];
        }
    }
    fail_msg("no parameter has role %d", (int)role);
    return NULL;
}

/* GPT-2 stores [inputs, outputs]: outputs are columns, and q, k and v three blocks of them. */
static void gpt2_is_cut_by_its_outputs_then_its_inputs(void **state)
{
    (void)state;
    struct arena arena = {0};
    ParamDef **defs;
    size_t num = table_of("gpt2", &arena, &defs);
    static const struct {
        ParamRole role;
        bool in_out, shard, on_rows;
        int32_t dim;
        int64_t groups;
    } want[] = {
        {ROLE_EMBED, false, true, false, 0, 1},
        {ROLE_POSITIONS, false, false, true, 0, 1},
        {ROLE_QKV, true, true, false, 1, 3},
        {ROLE_QKV_BIAS, false, true, false, 0, 3},
        {ROLE_O, true, true, false, 0, 1},
        {ROLE_O_BIAS, false, false, true, 0, 1},
        {ROLE_UP, true, true, false, 1, 1},
        {ROLE_UP_BIAS, false, true, false, 0, 1},
        {ROLE_DOWN, true, true, false, 0, 1},
        {ROLE_DOWN_BIAS, false, false, true, 0, 1},
        {ROLE_FINAL_NORM, false, false, true, 0, 1},
        {ROLE_FINAL_NORM_BIAS, false, false, true, 0, 1},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        const ParamDef *def = with_role(defs, num, want[i].role);
        assert_int_equal(def->in_out, want[i].in_out);
        assert_int_equal(def->tensor_spread == SPREAD_SHARD, want[i].shard);
        assert_int_equal(def->on_rows, want[i].on_rows);
        assert_int_equal(def->shard_dim, want[i].dim);
        assert_int_equal(def->shard_groups, want[i].groups);
    }
    arena_free(&arena);
}

/* They can be looked at; a job of one is refused by its name. */
static void families_that_cannot_be_trained_say_so(void **state)
{
    (void)state;
    ModelConfig c = llama(2, 64, 136, 8, 4, 256);
    struct error err = {0};
    assert_int_equal(family_check_built("model.config", &c, &err), 0);
    c.model_type = "mixtral";
    assert_int_equal(family_check_built("model.config", &c, &err), -1);
    assert_string_equal(err.text,
                        "model.config: model_type mixtral can be planned and not trained yet");
}

static void an_unknown_family_is_not_found(void **state)
{
    (void)state;
    assert_null(family_find("bert"));
    assert_null(family_find(NULL));
    assert_non_null(family_find("llama"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama3_has_its_published_parameters),
        cmocka_unit_test(a_tied_head_has_no_parameters_of_its_own),
        cmocka_unit_test(the_table_says_how_each_parameter_lies),
        cmocka_unit_test(flops_a_token_equal_a_count_by_hand),
        cmocka_unit_test(large_models_follow_the_six_n_rule),
        cmocka_unit_test(saved_tensors_add_up_to_the_closed_form),
        cmocka_unit_test(other_families_have_their_published_parameters),
        cmocka_unit_test(flops_count_active_experts),
        cmocka_unit_test(each_parameter_has_a_role_of_its_own),
        cmocka_unit_test(gpt2_is_cut_by_its_outputs_then_its_inputs),
        cmocka_unit_test(families_that_cannot_be_trained_say_so),
        cmocka_unit_test(an_unknown_family_is_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
