/* Hugging Face's config.json: what is read, what is refused and how the refusal reads. */
#include "model/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "model/family.h"
#include "proto/text.h"

#define BASE                                                                                       \
    "\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 128, "                 \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"vocab_size\": 256"

#define GPT2                                                                                       \
    "\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4, "                    \
    "\"n_positions\": 64, \"vocab_size\": 256"

static ModelConfig *parse_ok(const char *text)
{
    ModelConfig *c = NULL;
    struct error err = {0};
    if (config_parse("config.json", text, strlen(text), &c, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return c;
}

static void assert_refused(const char *text, const char *part)
{
    ModelConfig *c = NULL;
    struct error err = {0};
    assert_int_equal(config_parse("m/config.json", text, strlen(text), &c, &err), -1);
    assert_null(c);
    if (!strstr(err.text, part) || strncmp(err.text, "m/config.json:", 14) != 0) {
        fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    }
}

/* The text goes on as a string, in which a zero byte is the end: half of the keys would be gone
 * from an export. */
static void a_zero_byte_is_refused(void **state)
{
    (void)state;
    static const char text[] = "{" BASE ", \"later\": 1\0}";
    ModelConfig *c = NULL;
    struct error err = {0};
    assert_int_equal(config_parse("config.json", text, sizeof text - 1, &c, &err), -1);
    assert_non_null(strstr(err.text, "config.json: holds a zero byte"));
}

/* A file may leave out what the family has a default for. */
static void defaults_are_filled_in(void **state)
{
    (void)state;
    ModelConfig *c = parse_ok("{" BASE "}");
    assert_int_equal(c->head_dim, 8);
    assert_int_equal(c->num_key_value_heads, 8);
    assert_int_equal(c->max_position_embeddings, 2048);
    assert_true(c->rms_norm_eps == 1e-6);
    assert_true(c->rope_theta == 10000.0);
    assert_true(c->initializer_range == 0.02);
    assert_false(c->tie_word_embeddings);
    assert_null(c->rope_scaling);
    assert_true(c->has_rope_theta);
    model_config__free_unpacked(c, NULL);
}

/* head_dim is its own key: heads x head_dim need not be hidden_size. */
static void head_dim_may_differ_from_hidden_over_heads(void **state)
{
    (void)state;
    ModelConfig *c = parse_ok("{" BASE ", \"head_dim\": 32, \"num_key_value_heads\": 2}");
    assert_int_equal(c->head_dim, 32);
    assert_int_equal(c->num_key_value_heads, 2);
    model_config__free_unpacked(c, NULL);
}

static void golden_configs_are_read(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-tiny", "llama-tied", "llama-deep",
                                        "llama-deep-tied"};
    for (size_t i = 0; i < 4; i++) {
        char path[512], *text;
        size_t len;
        struct error err = {0};
        snprintf(path, sizeof path, "%s/tests/golden/%s/config.json", TANDEM_SOURCE_DIR, names[i]);
        assert_int_equal(fs_read_file(path, 65536, &text, &len, &err), 0);
        ModelConfig *c = NULL;
        assert_int_equal(config_parse(path, text, len, &c, &err), 0);
        assert_int_equal(c->tie_word_embeddings, strstr(names[i], "tied") != NULL);
        assert_string_equal(c->config_json, text);
        model_config__free_unpacked(c, NULL);
        free(text);
    }
}

/* Of each family a file as its makers write it, and the parameters that a model of it has. */
static void configs_of_other_families_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t num_params, experts, per_token;
    } cases[] = {{"mixtral-tiny", 169280, 8, 2},
                 {"qwen3-moe-tiny", 144768, 8, 3},
                 {"qwen2-tiny", 98880, 0, 0},
                 {"qwen3-tiny", 112064, 0, 0},
                 {"gpt2-tiny", 120576, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512], *text;
        size_t len;
        struct error err = {0};
        snprintf(path, sizeof path, "%s/tests/golden/%s/config.json", TANDEM_SOURCE_DIR,
                 cases[i].name);
        assert_int_equal(fs_read_file(path, 65536, &text, &len, &err), 0);
        ModelConfig *c = NULL;
        if (config_parse(path, text, len, &c, &err) != 0) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(c->num_experts, cases[i].experts);
        assert_int_equal(c->num_experts_per_tok, cases[i].per_token);
        assert_int_equal(family_num_params(c), cases[i].num_params);
        char *again = config_to_json(c, "float32");
        ModelConfig *copy = NULL;
        assert_int_equal(config_parse("export", again, strlen(again), &copy, &err), 0);
        assert_int_equal(family_num_params(copy), cases[i].num_params);
        free(again);
        model_config__free_unpacked(copy, NULL);
        model_config__free_unpacked(c, NULL);
        free(text);
    }
}

/* What a file leaves out is what its family's makers take. */
static void each_family_has_its_own_defaults(void **state)
{
    (void)state;
    ModelConfig *c = parse_ok("{" GPT2 "}");
    assert_true(c->rms_norm_eps == 1e-5);
    assert_true(c->tie_word_embeddings);
    assert_int_equal(c->intermediate_size, 256);
    assert_int_equal(c->num_key_value_heads, 4);
    model_config__free_unpacked(c, NULL);
    c = parse_ok("{\"model_type\": \"qwen3\", \"hidden_size\": 64, \"intermediate_size\": 128, "
                 "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"vocab_size\": 256}");
    assert_int_equal(c->head_dim, 128);
    assert_true(c->rms_norm_eps == 1e-6);
    model_config__free_unpacked(c, NULL);
}

#define MOE                                                                                        \
    "\"model_type\": \"qwen3_moe\", \"hidden_size\": 64, \"intermediate_size\": 128, "             \
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"vocab_size\": 256, "                  \
    "\"moe_intermediate_size\": 32"

static void keys_of_experts_are_checked(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{" MOE "}", "num_experts is missing"},
        {"{" MOE ", \"num_experts\": 4}", "num_experts_per_tok is missing"},
        {"{" MOE ", \"num_experts\": 4, \"num_experts_per_tok\": 5}",
         "num_experts_per_tok is 5; it has to be 1 to 4"},
        {"{" MOE ", \"num_experts\": 0, \"num_experts_per_tok\": 0}", "num_experts is 0"},
        {"{" MOE ", \"num_experts\": 4, \"num_experts_per_tok\": 2, \"mlp_only_layers\": [0]}",
         "mlp_only_layers"},
        {"{" MOE ", \"num_experts\": 4, \"num_experts_per_tok\": 2, \"decoder_sparse_step\": 2}",
         "decoder_sparse_step 2"},
        {"{" BASE ", \"num_experts\": 4}", "num_experts as it stands"},
        {"{\"model_type\": \"gpt2\"}", "n_embd is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_refused(cases[i][0], cases[i][1]);
    }
}

/* Both spellings of the type, and the newer place of theta. */
static void llama3_rope_is_read_in_each_spelling(void **state)
{
    (void)state;
#define L3                                                                                         \
    "\"factor\": 8.0, \"low_freq_factor\": 1, \"high_freq_factor\": 4.0, "                         \
    "\"original_max_position_embeddings\": 128"
    static const char *const texts[] = {
        "{" BASE ", \"rope_scaling\": {\"rope_type\": \"llama3\", " L3 "}, \"rope_theta\": 5e5}",
        "{" BASE ", \"rope_scaling\": {\"type\": \"llama3\", " L3 "}, \"rope_theta\": 5e5}",
        "{" BASE ", \"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 5e5, " L3 "}}",
    };
    for (size_t i = 0; i < 3; i++) {
        ModelConfig *c = parse_ok(texts[i]);
        assert_non_null(c->rope_scaling);
        assert_string_equal(c->rope_scaling->rope_type, "llama3");
        assert_true(c->rope_scaling->factor == 8.0);
        assert_true(c->rope_scaling->low_freq_factor == 1.0);
        assert_int_equal(c->rope_scaling->original_max_position_embeddings, 128);
        assert_true(c->rope_theta == 5e5);
        model_config__free_unpacked(c, NULL);
    }
    ModelConfig *c = parse_ok("{" BASE ", \"rope_scaling\": {\"type\": \"default\"}}");
    assert_null(c->rope_scaling);
    model_config__free_unpacked(c, NULL);
}

/* A key that would change the arithmetic is never passed over in silence. */
static void what_we_cannot_compute_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"model_type\": \"bert\"}", "model_type \"bert\" is not supported"},
        {"{" BASE ", \"hidden_act\": \"gelu\"}", "hidden_act \"gelu\""},
        {"{" BASE ", \"attention_bias\": true}", "attention_bias true"},
        {"{" BASE ", \"mlp_bias\": true}", "mlp_bias true"},
        {"{" BASE ", \"pretraining_tp\": 2}", "pretraining_tp 2"},
        {"{" BASE ", \"sliding_window\": 4096}", "sliding_window"},
        {"{" BASE ", \"attention_dropout\": 1.5}", "attention_dropout is not a number from 0 to 1"},
        {"{" BASE ", \"partial_rotary_factor\": 0.5}", "partial_rotary_factor 0.5"},
        {"{" BASE ", \"quantization_config\": {}}", "quantization_config"},
        {"{" BASE ", \"hidden_act\": \"silu_and_mul\"}", "hidden_act \"silu_and_mul\""},
        {"{" BASE ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]}", "layer_types"},
        {"{" GPT2 ", \"activation_function\": \"gelu\"}", "activation_function \"gelu\""},
        {"{" GPT2 ", \"resid_pdrop\": \"0.1\"}", "resid_pdrop is not a number from 0 to 1"},
        {"{" GPT2 ", \"scale_attn_weights\": false}", "scale_attn_weights false"},
        {"{" GPT2 ", \"scale_attn_by_inverse_layer_idx\": true}",
         "scale_attn_by_inverse_layer_idx"},
        {"{" GPT2 ", \"add_cross_attention\": true}", "add_cross_attention true"},
        {"{" BASE ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}", "\"linear\""},
        {"{" BASE ", \"rope_scaling\": {\"factor\": 2}}", "no rope_type"},
        {"{" BASE ", \"rope_scaling\": {\"rope_type\": \"llama3\"}}", "factor is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_refused(cases[i][0], cases[i][1]);
    }
}

/* Every published GPT-2 asks for 0.1: that is about the training it had, the job says its own. */
static void a_dropout_is_read_and_kept_but_not_obeyed(void **state)
{
    (void)state;
    ModelConfig *c = parse_ok("{" GPT2 ", \"attn_pdrop\": 0.05, \"embd_pdrop\": 0.1, "
                              "\"resid_pdrop\": null}");
    assert_true(config_dropout(c) == 0.1);
    char *text = config_to_json(c, "float32");
    assert_non_null(strstr(text, "\"embd_pdrop\": 0.1"));
    free(text);
    model_config__free_unpacked(c, NULL);
    c = parse_ok("{" BASE ", \"attention_dropout\": 0.2}");
    assert_true(config_dropout(c) == 0.2);
    model_config__free_unpacked(c, NULL);
    c = parse_ok("{" BASE "}");
    assert_true(config_dropout(c) == 0);
    model_config__free_unpacked(c, NULL);
}

/* Sizes come from outside: each is bounded before it is multiplied. */
static void sizes_are_bounded_and_divisible(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"[]", "not a JSON object"},
        {"{\"a\": ", "m/config.json:1:"},
        {"{}", "model_type is missing"},
        {"{\"model_type\": \"llama\"}", "hidden_size is missing"},
        {"{" BASE ", \"hidden_size\": 64}", "duplicate"},
        {"{" BASE ", \"num_key_value_heads\": 3}", "not divisible by num_key_value_heads 3"},
        {"{" BASE ", \"head_dim\": 7}", "head_dim 7 is odd"},
        {"{" BASE ", \"head_dim\": -2}", "head_dim is -2"},
        {"{" BASE ", \"head_dim\": \"8\"}", "head_dim is not a whole number"},
        {"{" BASE ", \"num_key_value_heads\": 0}", "num_key_value_heads is 0"},
        {"{" BASE ", \"max_position_embeddings\": 9223372036854775807}", "max_position_embeddings"},
        {"{" BASE ", \"rms_norm_eps\": -1}", "rms_norm_eps"},
        {"{" BASE ", \"tie_word_embeddings\": 1}", "tie_word_embeddings"},
        {"{\"model_type\": \"llama\", \"hidden_size\": 65, \"intermediate_size\": 1, "
         "\"num_hidden_layers\": 1, \"num_attention_heads\": 8, \"vocab_size\": 2}",
         "hidden_size 65 is not divisible"},
        {"{\"model_type\": \"llama\", \"hidden_size\": 1048576, \"intermediate_size\": 4194304, "
         "\"num_hidden_layers\": 16384, \"num_attention_heads\": 128, \"head_dim\": 128, "
         "\"vocab_size\": 2}",
         "parameters; at most"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_refused(cases[i][0], cases[i][1]);
    }
}

/* GPT-2 turns nothing: its heads may be of any width. What is wrong is told in the keys that its
 * files have. */
static void gpt2_is_read_and_refused_by_its_own_keys(void **state)
{
    (void)state;
    ModelConfig *c = parse_ok("{\"model_type\": \"gpt2\", \"n_embd\": 21, \"n_layer\": 1, "
                              "\"n_head\": 3, \"n_positions\": 8, \"vocab_size\": 5}");
    assert_int_equal(c->head_dim, 7);
    model_config__free_unpacked(c, NULL);
    static const char *const cases[][2] = {
        {"{" GPT2 ", \"n_inner\": 0}", "n_inner is 0"},
        {"{" GPT2 ", \"layer_norm_epsilon\": -1}", "layer_norm_epsilon is -1"},
        {"{\"model_type\": \"gpt2\", \"n_embd\": 21, \"n_layer\": 1, \"n_head\": 2, "
         "\"n_positions\": 8, \"vocab_size\": 5}",
         "n_embd 21 is not divisible by n_head 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_refused(cases[i][0], cases[i][1]);
    }
}

static void assert_holds(const char *text, const char *part, bool holds)
{
    if ((strstr(text, part) != NULL) != holds) {
        fail_msg("\"%s\" %s in %s", part, holds ? "isn't" : "is", text);
    }
}

/* Readers that go by `architectures` would otherwise build a Llama, and transformers would fill in
 * dropouts that the run didn't have. */
static void an_export_names_its_family_and_keeps_to_its_keys(void **state)
{
    (void)state;
    ModelConfig *c = parse_ok("{" GPT2 "}");
    char *text = config_to_json(c, "float32");
    assert_holds(text, "\"GPT2LMHeadModel\"", true);
    assert_holds(text, "\"attn_pdrop\": 0.0", true);
    assert_holds(text, "rope", false);
    assert_holds(text, "silu", false);
    assert_holds(text, "hidden_size", false);
    free(text);
    free(c->config_json);
    c->config_json = NULL;
    text = config_to_json(c, "float32");
    ModelConfig *again = parse_ok(text);
    assert_int_equal(family_num_params(again), family_num_params(c));
    model_config__free_unpacked(again, NULL);
    free(text);
    model_config__free_unpacked(c, NULL);
    c = parse_ok("{\"model_type\": \"qwen2\", \"hidden_size\": 64, \"intermediate_size\": 128, "
                 "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"vocab_size\": 256}");
    text = config_to_json(c, "float32");
    assert_holds(text, "\"Qwen2ForCausalLM\"", true);
    assert_holds(text, "attention_bias", false);
    free(text);
    model_config__free_unpacked(c, NULL);
}

/* An export must load again, here and in transformers: our reader accepts what we write, and what
 * it did not know is still there. */
static void an_export_keeps_unknown_keys_and_sets_the_dtype(void **state)
{
    (void)state;
    ModelConfig *c = parse_ok("{" BASE ", \"torch_dtype\": \"bfloat16\", \"my_key\": [1, 2], "
                              "\"eos_token_id\": [5, 6], \"rms_norm_eps\": 1e-05}");
    assert_int_equal(c->eos_token_id, 5);
    assert_int_equal(c->n_eos_token_ids, 2);
    assert_int_equal(c->eos_token_ids[1], 6);
    char *text = config_to_json(c, "float32");
    assert_non_null(strstr(text, "\"torch_dtype\": \"float32\""));
    assert_non_null(strstr(text, "my_key"));
    assert_non_null(strstr(text, "\"LlamaForCausalLM\""));
    ModelConfig *again = parse_ok(text);
    assert_int_equal(again->head_dim, 8);
    assert_true(again->rms_norm_eps == c->rms_norm_eps);
    assert_non_null(strstr(text, "6"));
    model_config__free_unpacked(again, NULL);
    free(text);
    model_config__free_unpacked(c, NULL);
}

/* A message carries no carriage returns; the file of a Windows editor has to load all the same. */
static void the_text_is_rewritten_where_a_message_can_not_carry_it(void **state)
{
    (void)state;
    ModelConfig *c = parse_ok("{" BASE ",\r\n \"note\": \"a\x7f\"}\r\n");
    assert_null(strchr(c->config_json, '\r'));
    assert_non_null(strstr(c->config_json, "\"note\""));
    assert_int_equal(text_check_message(&c->base, 65536, NULL), 0);
    model_config__free_unpacked(c, NULL);
}

static void an_export_without_the_file_has_every_key(void **state)
{
    (void)state;
    ModelConfig *c = parse_ok(
        "{" BASE
        ", \"tie_word_embeddings\": true, \"rope_scaling\": {\"rope_type\": \"llama3\", " L3 "}}");
    free(c->config_json);
    c->config_json = NULL;
    char *text = config_to_json(c, "float64");
    ModelConfig *again = parse_ok(text);
    free(again->config_json);
    again->config_json = NULL;
    size_t len = model_config__get_packed_size(c);
    assert_int_equal(model_config__get_packed_size(again), len);
    uint8_t *a = malloc(len), *b = malloc(len);
    assert_true(a && b);
    model_config__pack(c, a);
    model_config__pack(again, b);
    assert_memory_equal(a, b, len);
    free(a);
    free(b);
    free(text);
    model_config__free_unpacked(again, NULL);
    model_config__free_unpacked(c, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_filled_in),
        cmocka_unit_test(head_dim_may_differ_from_hidden_over_heads),
        cmocka_unit_test(golden_configs_are_read),
        cmocka_unit_test(configs_of_other_families_are_read),
        cmocka_unit_test(each_family_has_its_own_defaults),
        cmocka_unit_test(keys_of_experts_are_checked),
        cmocka_unit_test(llama3_rope_is_read_in_each_spelling),
        cmocka_unit_test(what_we_cannot_compute_is_refused_by_name),
        cmocka_unit_test(a_dropout_is_read_and_kept_but_not_obeyed),
        cmocka_unit_test(sizes_are_bounded_and_divisible),
        cmocka_unit_test(gpt2_is_read_and_refused_by_its_own_keys),
        cmocka_unit_test(an_export_names_its_family_and_keeps_to_its_keys),
        cmocka_unit_test(an_export_keeps_unknown_keys_and_sets_the_dtype),
        cmocka_unit_test(the_text_is_rewritten_where_a_message_can_not_carry_it),
        cmocka_unit_test(an_export_without_the_file_has_every_key),
        cmocka_unit_test(a_zero_byte_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
