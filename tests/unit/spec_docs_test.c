/* What stands about job files elsewhere, held against the code: the reference, the examples, and
 * the table of rules. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/fs.h"
#include "plan/spec_check.h"
#include "plan/spec_docs.h"
#include "plan/spec_rules.h"
#include "proto/text.h"
#include "spec_case.h"

static char *read_source(const char *name)
{
    struct error err = {0};
    char path[512], *text = NULL;
    size_t len;
    snprintf(path, sizeof path, "%s/%s", TANDEM_SOURCE_DIR, name);
    if (fs_read_file(path, TEXT_MAX_BYTES, &text, &len, &err)) {
        fail_msg("%s", err.text);
    }
    return text;
}

/* ---- defaults ------------------------------------------------------------------------------- */

/* jobspec.yaml states every default. A job that leaves them all out must come to the same spec. */
static void the_defaults_are_those_of_the_job_spec_text(void **state)
{
    (void)state;
    struct error err = {0};
    char *text = read_source("tests/golden/jobspec.yaml");
    ProtobufCMessage *m = NULL;
    if (text_parse("jobspec.yaml", text, strlen(text), &job_spec__descriptor, &m, &err)) {
        fail_msg("%s", err.text);
    }
    free(text);
    JobSpec *full = (JobSpec *)m;
    /* What the text gives as examples, in a form that is valid here. */
    static const char *const sets[][2] = {
        {"model.path", "/m"}, {"data.train.0.path", "/d"}, {"parallel.data", "2"}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        assert_int_equal(text_set(m, sets[i][0], sets[i][1], &err), 0);
    }
    JobSpec *bare =
        spec_case_parse("name: shakespeare\n"
                        "tenant: research\n"
                        "model: {path: /m}\n"
                        "data: {train: [{path: /d, format: text}]}\n"
                        "training: {steps: 1000, seq_len: 1024, global_batch_size: 64}\n"
                        "parallel: {data: 2}\n");
    if (spec_check(full, &err) || spec_check(bare, &err)) {
        fail_msg("%s", err.text);
    }
    spec_case_same(full, bare);
    assert_string_equal(bare->priority, "normal");
    assert_int_equal(bare->resources->devices, 2);
    job_spec__free_unpacked(full, NULL);
    job_spec__free_unpacked(bare, NULL);
}

/* Every default stands in jobspec.yaml: what it says before the check is what it says after, but
 * for the fields that text leaves to comments. */
static void the_job_spec_text_names_every_default(void **state)
{
    (void)state;
    struct error err = {0};
    char *text = read_source("tests/golden/jobspec.yaml");
    ProtobufCMessage *m = NULL;
    assert_int_equal(
        text_parse("jobspec.yaml", text, strlen(text), &job_spec__descriptor, &m, &err), 0);
    free(text);
    assert_int_equal(text_set(m, "model.path", "/m", &err), 0);
    assert_int_equal(text_set(m, "data.train.0.path", "/d", &err), 0);
    assert_int_equal(text_set(m, "parallel.data", "2", &err), 0);
    assert_int_equal(text_set(m, "model.init_seed", "1234", &err), 0);
    assert_int_equal(text_set(m, "data.train.0.window", "T", &err), 0);
    ProtobufCMessage *before = text_clone(m);
    assert_int_equal(spec_check((JobSpec *)m, &err), 0);
    spec_case_same(m, before);
    protobuf_c_message_free_unpacked(m, NULL);
    protobuf_c_message_free_unpacked(before, NULL);
}

/* ---- the reference --------------------------------------------------------------------------- */

/* docs/job-spec.md says what the program does. */
static void the_reference_is_up_to_date(void **state)
{
    (void)state;
    char *text = read_source("docs/job-spec.md");
    struct buf made = {0};
    spec_docs_markdown(&made);
    if (strcmp(text, made.data) != 0) {
        fail_msg("docs/job-spec.md is not what `tandem explain --markdown` prints");
    }
    buf_free(&made);
    free(text);
}

/* The files that the reference shows are valid, and the whole one states the defaults. */
static void the_files_in_the_reference_are_valid(void **state)
{
    (void)state;
    struct error err = {0};
    struct buf made = {0};
    spec_docs_markdown(&made);
    char *rest = made.data;
    for (int i = 0; i < 2; i++) {
        char *text = strstr(rest, "```yaml\n");
        assert_non_null(text);
        text += 8;
        char *end = strstr(text, "```");
        assert_non_null(end);
        ProtobufCMessage *m = NULL;
        if (text_parse("job-spec.md", text, (size_t)(end - text), &job_spec__descriptor, &m,
                       &err)) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(text_set(m, "model.path", "/m", &err), 0);
        assert_int_equal(text_set(m, "data.train.0.path", "/d", &err), 0);
        ProtobufCMessage *before = text_clone(m);
        if (spec_check((JobSpec *)m, &err)) {
            fail_msg("%s", err.text);
        }
        if (i == 1) {
            assert_int_equal(text_set(before, "resources.devices", "1", &err), 0);
            spec_case_same(m, before);
        }
        protobuf_c_message_free_unpacked(before, NULL);
        protobuf_c_message_free_unpacked(m, NULL);
        rest = end + 3;
    }
    buf_free(&made);
}

/* The examples pass the check once their paths are absolute, as the CLI makes them. */
static void the_examples_are_valid(void **state)
{
    (void)state;
    static const char *const files[] = {"examples/quickstart.yaml", "examples/small-llama.yaml"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct error err = {0};
        char *text = read_source(files[i]);
        JobSpec *spec = spec_case_parse(text);
        assert_non_null(spec->model->config);
        assert_int_equal(text_set(&spec->base, "model.config", "/c", &err), 0);
        if (spec_check(spec, &err)) {
            fail_msg("%s: %s", files[i], err.text);
        }
        job_spec__free_unpacked(spec, NULL);
        free(text);
    }
}

/* ---- the table ------------------------------------------------------------------------------ */

static void check_rules_of(const ProtobufCMessageDescriptor *d, size_t *num)
{
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        char name[128];
        snprintf(name, sizeof name, "%s.%s", d->short_name, f->name);
        const struct spec_rule *rule = spec_rules_find(name);
        if (!rule) {
            fail_msg("%s has no rule", name);
        }
        (*num)++;
        /* A number or word that anything goes for would be unchecked. */
        bool free_type = f->type == PROTOBUF_C_TYPE_BOOL || f->type == PROTOBUF_C_TYPE_MESSAGE ||
                         f->type == PROTOBUF_C_TYPE_UINT64;
        if (rule->kind == SPEC_FREE && !free_type && !rule->unbuilt) {
            fail_msg("%s has a rule that checks nothing", name);
        }
        if (f->type == PROTOBUF_C_TYPE_STRING && f->default_value && rule->kind == SPEC_WORD) {
            struct spec_words words;
            bool found = false;
            spec_words_split(&words, rule->words, NULL);
            for (size_t w = 0; w < words.num; w++) {
                found |= strcmp(words.word[w], f->default_value) == 0;
            }
            if (!found) {
                fail_msg("the default of %s is not one of its words", name);
            }
        }
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && strcmp(name, "DataSpec.validation") != 0) {
            check_rules_of(f->descriptor, num);
        }
    }
}

/* Each field of a job file is in the table, and the table has no field that a job file lacks. */
static void every_field_has_a_rule_and_every_rule_a_field(void **state)
{
    (void)state;
    size_t num = 0, num_rules = 0;
    check_rules_of(&job_spec__descriptor, &num);
    while (spec_rules_at(num_rules)) {
        num_rules++;
    }
    assert_int_equal(num, num_rules);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_defaults_are_those_of_the_job_spec_text),
        cmocka_unit_test(the_job_spec_text_names_every_default),
        cmocka_unit_test(the_reference_is_up_to_date),
        cmocka_unit_test(the_files_in_the_reference_are_valid),
        cmocka_unit_test(the_examples_are_valid),
        cmocka_unit_test(every_field_has_a_rule_and_every_rule_a_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
