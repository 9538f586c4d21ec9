/* proto/text: YAML and JSON to messages and back, bounds, what is said of mistakes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "proto/names.h"
#include "proto/number.h"
#include "proto/text.h"

static ProtobufCMessage *parse(const ProtobufCMessageDescriptor *descriptor, const char *text)
{
    struct error err = {0};
    ProtobufCMessage *message = NULL;
    if (text_parse("t.yaml", text, strlen(text), descriptor, &message, &err)) {
        fail_msg("%s", err.text);
    }
    return message;
}

static void refuses(const ProtobufCMessageDescriptor *descriptor, const char *text,
                    const char *said)
{
    struct error err = {0};
    ProtobufCMessage *message = NULL;
    assert_int_equal(text_parse("t.yaml", text, strlen(text), descriptor, &message, &err), -1);
    assert_string_equal(err.text, said);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_null(message);
}

static void drop(void *message)
{
    protobuf_c_message_free_unpacked(message, NULL);
}

static void expect_json(const void *message, const char *json)
{
    struct buf out = {0};
    text_to_json(&out, message, 0);
    assert_string_equal(out.data, json);
    buf_free(&out);
}

/* Presence is real: weight_decay: 0 is not an absent field. */
static void a_zero_is_set_and_an_absent_field_is_not(void **state)
{
    (void)state;
    JobSpec *spec = (JobSpec *)parse(&job_spec__descriptor,
                                     "name: a\ntraining:\n  optimizer: {weight_decay: 0}\n");
    assert_true(spec->training->optimizer->has_weight_decay);
    assert_true(text_is_set(&spec->base, "training.optimizer.weight_decay"));
    assert_false(text_is_set(&spec->base, "training.optimizer.lr"));
    assert_false(text_is_set(&spec->base, "priority"));
    assert_string_equal(spec->priority, "normal");
    drop(spec);
}

/* A JSON file is a job file too, with JSON's own escapes, also those of two halves. */
static void json_with_its_escapes_is_read(void **state)
{
    (void)state;
    JobSpec *spec = (JobSpec *)parse(
        &job_spec__descriptor,
        "{\"name\":\"a\\/b\\u00e9\\ud83d\\ude00\\\\ud83d\",\n\t\"tags\":[\"x\",\"\\\"y\"],"
        "\"training\":{\"steps\":1000,\"clip_grad_norm\":1.5e0,\"deterministic\":false}}");
    assert_string_equal(spec->name, "a/b\xc3\xa9\xf0\x9f\x98\x80\\ud83d");
    assert_int_equal(spec->n_tags, 2);
    assert_string_equal(spec->tags[1], "\"y");
    assert_int_equal(spec->training->steps, 1000);
    assert_true(spec->training->clip_grad_norm == 1.5);
    assert_false(spec->training->deterministic);
    drop(spec);
}

/* A word is text where text is wanted, whatever a YAML reader would make of it. */
static void a_plain_word_fits_a_text_field_as_written(void **state)
{
    (void)state;
    JobSpec *spec = (JobSpec *)parse(&job_spec__descriptor,
                                     "name: 1e3\npriority: 0700\ntags: [on, 1.0, 'null']\n"
                                     "spikes: {action: off}\ntenant: ~\n");
    expect_json(spec, "{\"name\":\"1e3\",\"priority\":\"0700\",\"tags\":[\"on\",\"1.0\",\"null\"],"
                      "\"spikes\":{\"action\":\"off\"}}");
    drop(spec);
}

/* Counts may be written as people write them, but never rounded. */
static void whole_numbers_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"1000", 1000},
        {"\"1000\"", 1000},
        {"1e6", 1000000},
        {"1.50e2", 150},
        {"120e-1", 12},
        {"65536.0", 65536},
        {"-0", 0},
        {"+7", 7},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"9.223372036854775807e18", INT64_MAX},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char text[64];
        snprintf(text, sizeof text, "steps: %s", good[i].text);
        TrainingSpec *t = (TrainingSpec *)parse(&training_spec__descriptor, text);
        assert_int_equal(t->steps, good[i].value);
        drop(t);
    }
    static const char *const bad[] = {"abc",  "1_000", "0x10", "010",  "1.5", "1e",  "1e-1",
                                      "1:30", "--1",   ".inf", ".nan", "1 2", "true"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[64], said[128];
        snprintf(text, sizeof text, "steps: %s", bad[i]);
        snprintf(said, sizeof said, "t.yaml:1:8: steps: wants a whole number, got \"%s\"", bad[i]);
        refuses(&training_spec__descriptor, text, said);
    }
    refuses(&training_spec__descriptor, "steps: 9223372036854775808",
            "t.yaml:1:8: steps: wants a whole number from -9223372036854775808 to "
            "9223372036854775807, got \"9223372036854775808\"");
    refuses(&training_spec__descriptor, "seed: -1",
            "t.yaml:1:7: seed: wants a whole number from 0 to 18446744073709551615, got \"-1\"");
    refuses(&logs_request__descriptor, "rank: 1e10",
            "t.yaml:1:7: rank: wants a whole number from -2147483648 to 2147483647, got \"1e10\"");
}

static void doubles_are_decimal_and_finite(void **state)
{
    (void)state;
    OptimizerSpec *o = (OptimizerSpec *)parse(&optimizer_spec__descriptor,
                                              "{lr: 3.0e-4, eps: .5, betas: [1, 1.]}");
    assert_true(o->lr == 3.0e-4);
    assert_true(o->eps == 0.5);
    assert_int_equal(o->n_betas, 2);
    drop(o);
    static const char *const bad[] = {".inf", "-.inf", ".nan", "nan", "inf", "0x1p3", "1,5", "1_0"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[64], said[128];
        snprintf(text, sizeof text, "lr: %s", bad[i]);
        snprintf(said, sizeof said, "t.yaml:1:5: lr: wants a number, got \"%s\"", bad[i]);
        refuses(&optimizer_spec__descriptor, text, said);
    }
    refuses(&optimizer_spec__descriptor, "lr: 1e999",
            "t.yaml:1:5: lr: is too large a number: \"1e999\"");
}

/* A mistake is named with its place, its path and the mend. */
static void mistakes_name_place_path_and_mend(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *d = &job_spec__descriptor;
    refuses(d, "name: a\ntraining:\n  steps: 1\n  micro_batch: 4\n",
            "t.yaml:4:3: training.micro_batch: unknown field; did you mean micro_batch_size?");
    refuses(d, "nmae: a", "t.yaml:1:1: nmae: unknown field; did you mean name?");
    refuses(d, "lr: 1", "t.yaml:1:1: lr: unknown field; did you mean training.optimizer.lr?");
    refuses(d, "tensor: 2", "t.yaml:1:1: tensor: unknown field; did you mean parallel.tensor?");
    refuses(d, "model: {weights: x}",
            "t.yaml:1:9: model.weights: unknown field; known here: path, "
            "config, init_seed, from_checkpoint");
    refuses(d, "data:\n  train:\n    - path: x\n      fromat: u16",
            "t.yaml:4:7: data.train.0.fromat: unknown field; did you mean format?");
    refuses(d, "name: a\nname: b", "t.yaml:2:1: name: stands twice");
    refuses(d, "training: fast", "t.yaml:1:11: training: wants a mapping, got \"fast\"");
    refuses(d, "training: [1]", "t.yaml:1:11: training: wants a mapping, got a list");
    refuses(d, "tags: a", "t.yaml:1:7: tags: wants a list, got \"a\"");
    refuses(d, "tags: [a, [b]]", "t.yaml:1:11: tags.1: wants text, got a list");
    refuses(d, "tags: [a, ]\nafter: [1, ~]", "t.yaml:2:12: after.1: an element is empty");
    refuses(d, "name: {a: b}", "t.yaml:1:7: name: wants text, got a mapping");
    refuses(d, "hold: yes", "t.yaml:1:7: hold: wants true or false, got \"yes\"");
    refuses(d, "hold: 'true'", "t.yaml:1:7: hold: wants true or false, got \"true\"");
    refuses(d, "- a", "t.yaml:1:1: wants a mapping, got a list");
    refuses(d, "[a]: b", "t.yaml:1:1: a key must be a word");
    refuses(d, "name: a: b",
            "t.yaml:1:8: not valid YAML: mapping values are not allowed in this context");
    refuses(d, "name: \"a\\u0007\"", "t.yaml:1:7: name: holds a control character");
    refuses(d, "name: \"a\\0b\"", "t.yaml:1:7: name: holds a control character");
    refuses(d, "name: a\ntenant: \xff", "t.yaml:2:9: not valid YAML: invalid leading UTF-8 octet");
    refuses(d, "name: a\n---\nname: b", "t.yaml:2:1: more than one document");
}

/* Nothing in a file may refer, expand or choose a type. */
static void anchors_aliases_and_tags_are_refused(void **state)
{
    (void)state;
    const ProtobufCMessageDescriptor *d = &job_spec__descriptor;
    refuses(d, "name: &x a", "t.yaml:1:7: name: anchors and aliases are not accepted");
    refuses(d, "name: *x", "t.yaml:1:7: name: anchors and aliases are not accepted");
    refuses(d, "training: &t {steps: 1}",
            "t.yaml:1:11: training: anchors and aliases are not accepted");
    refuses(d, "name: !!str a", "t.yaml:1:7: name: tags are not accepted");
    refuses(d, "training: !x {steps: 1}", "t.yaml:1:11: training: tags are not accepted");
}

/* A file can't make the reader work or allocate without end. */
static void size_and_number_of_values_are_bounded(void **state)
{
    (void)state;
    struct buf text = {0};
    struct error err = {0};
    ProtobufCMessage *message;
    buf_puts(&text, "tags: [");
    for (int i = 0; i < 200001; i++) {
        buf_puts(&text, "a, ");
    }
    buf_puts(&text, "]");
    assert_int_equal(text_parse("t", text.data, text.len, &job_spec__descriptor, &message, &err),
                     -1);
    assert_non_null(strstr(err.text, "more than 200000 values"));
    buf_clear(&text);
    while (text.len <= TEXT_MAX_BYTES) {
        buf_puts(&text, "################################################################");
    }
    assert_int_equal(text_parse("t", text.data, text.len, &job_spec__descriptor, &message, &err),
                     -1);
    assert_string_equal(err.text, "t: larger than 4194304 bytes");
    buf_clear(&text);
    for (int i = 0; i < 100000; i++) {
        buf_puts(&text, "[");
    }
    assert_int_equal(text_parse("t", text.data, text.len, &job_spec__descriptor, &message, &err),
                     -1);
    buf_free(&text);
}

static void an_empty_file_is_an_empty_message(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "# nothing\n", "---\n", "~", "{}", "\xef\xbb\xbf{}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ProtobufCMessage *message = parse(&job_spec__descriptor, texts[i]);
        expect_json(message, "{}");
        drop(message);
    }
}

/* parallel: auto and parallel: {data: 2} are the same field. */
static void a_choice_is_flattened(void **state)
{
    (void)state;
    JobSpec *spec = (JobSpec *)parse(&job_spec__descriptor, "parallel: auto");
    assert_int_equal(spec->parallel->choice_case, PARALLEL_CHOICE__CHOICE_WORD);
    expect_json(spec, "{\"parallel\":\"auto\"}");
    drop(spec);
    spec = (JobSpec *)parse(&job_spec__descriptor, "parallel:\n  data: 2\n");
    assert_int_equal(spec->parallel->choice_case, PARALLEL_CHOICE__CHOICE_LAYOUT);
    expect_json(spec, "{\"parallel\":{\"data\":2}}");
    assert_true(text_is_set(&spec->base, "parallel.data"));
    assert_false(text_is_set(&spec->base, "parallel.tensor"));
    drop(spec);
    refuses(&job_spec__descriptor, "parallel: [2]",
            "t.yaml:1:11: parallel: wants a word or a mapping, got a list");
    refuses(&job_spec__descriptor, "parallel: {dta: 2}",
            "t.yaml:1:12: parallel.dta: unknown field; did you mean data?");
    /* A oneof of many messages can't be told apart, so it keeps its member's name. */
    RankUp *up = (RankUp *)parse(&rank_up__descriptor, "done: {paused: true}");
    expect_json(up, "{\"done\":{\"paused\":true}}");
    drop(up);
}

static void enums_are_words_without_their_prefix(void **state)
{
    (void)state;
    Job *job = (Job *)parse(&job__descriptor, "{id: 9007199254740993, state: running}");
    assert_int_equal(job->state, JOB_RUNNING);
    expect_json(job, "{\"id\":9007199254740993,\"state\":\"RUNNING\"}");
    drop(job);
    job = (Job *)parse(&job__descriptor, "state: JOB_QUEUED");
    assert_int_equal(job->state, JOB_QUEUED);
    drop(job);
    refuses(&job__descriptor, "state: RUNING",
            "t.yaml:1:8: state: wants one of QUEUED, HELD, STARTING, RUNNING, STOPPING, PAUSED, "
            "SUCCEEDED, FAILED, CANCELLED, got \"RUNING\"; did you mean RUNNING?");
}

static void bytes_are_base64(void **state)
{
    (void)state;
    static const struct {
        const char *text, *bytes;
    } all[] = {{"", ""},        {"Zg==", "f"},        {"Zm8=", "fo"},
               {"Zm9v", "foo"}, {"Zm9vYg==", "foob"}, {"Zm9vYmE=", "fooba"}};
    for (size_t i = 1; i < sizeof all / sizeof *all; i++) {
        char text[64], json[64];
        snprintf(text, sizeof text, "data: %s", all[i].text);
        LogsReply *reply = (LogsReply *)parse(&logs_reply__descriptor, text);
        assert_int_equal(reply->data.len, strlen(all[i].bytes));
        assert_memory_equal(reply->data.data, all[i].bytes, reply->data.len);
        snprintf(json, sizeof json, "{\"data\":\"%s\"}", all[i].text);
        expect_json(reply, json);
        drop(reply);
    }
    refuses(&logs_reply__descriptor, "data: Zg=", "t.yaml:1:7: data: wants base64");
    refuses(&logs_reply__descriptor, "data: Z=g=", "t.yaml:1:7: data: wants base64");
    refuses(&logs_reply__descriptor, "data: '===='", "t.yaml:1:7: data: wants base64");
}

/* Curves lose nothing on their way through text. */
static void doubles_are_written_short_and_exact(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } all[] = {{0.1, "0.1"},      {1.0 / 3, "0.3333333333333333"},
               {1e-8, "1.0e-08"},   {65536, "65536"},
               {3e-4, "0.0003"},  {-0.0, "-0"},
               {1e300, "1.0e+300"}, {5e-324, "4.94065645841247e-324"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[NUMBER_TEXT_MAX];
        number_format(text, all[i].value);
        assert_string_equal(text, all[i].text);
        assert_true(strtod(text, NULL) == all[i].value);
    }
    StepMetrics m = STEP_METRICS__INIT;
    m.has_loss = m.has_lr = 1;
    m.loss = NAN;
    m.lr = INFINITY;
    expect_json(&m, "{\"loss\":null,\"lr\":null}");
}

/* Text that holds anything is one valid string in JSON and in YAML. */
static void strings_survive_json_and_yaml(void **state)
{
    (void)state;
    static const char *const all[] = {
        "",
        " a ",
        "a: b",
        "# x",
        "'",
        "\"",
        "a\nb\tc",
        "\\",
        "null",
        "~",
        "true",
        "No",
        "1.5",
        "- a",
        "{a}",
        "*x",
        "!t",
        "%d",
        "@a",
        "a #b",
        "a\xc3\xa9",
        "\xe2\x80\xa8",
        "\xef\xbb\xbf",
        "\xef\xbf\xbf",
        "\xf0\x9f\x98\x80",
        "/a/b",
        "T+1",
        "zb-h1",
        "y",
        "0x1",
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        JobSpec spec = JOB_SPEC__INIT;
        char *tags[] = {(char *)(uintptr_t)all[i], (char *)(uintptr_t) "x"};
        spec.name = tags[0];
        spec.tags = tags;
        spec.n_tags = 2;
        for (int form = 0; form < 3; form++) {
            struct buf out = {0};
            if (form < 2) {
                text_to_json(&out, &spec.base, form * 2);
            } else {
                text_to_yaml(&out, &spec.base);
            }
            JobSpec *again = (JobSpec *)parse(&job_spec__descriptor, out.data);
            assert_string_equal(again->name, all[i]);
            assert_int_equal(again->n_tags, 2);
            assert_string_equal(again->tags[0], all[i]);
            drop(again);
            buf_free(&out);
        }
    }
}

static void yaml_and_json_have_the_known_form(void **state)
{
    (void)state;
    ProtobufCMessage *m = parse(&job_spec__descriptor,
                                "{name: a, tags: [x, 'y z'], data: {train: [{path: /x, weight: 1}, "
                                "{}]}, parallel: {data: 2}, checkpoint: {interval: 5}, retry: {}}");
    struct buf out = {0};
    text_to_yaml(&out, m);
    assert_string_equal(out.data, "name: a\n"
                                  "tags: [x, \"y z\"]\n"
                                  "data:\n"
                                  "  train:\n"
                                  "    - path: /x\n"
                                  "      weight: 1\n"
                                  "    - {}\n"
                                  "parallel:\n"
                                  "  data: 2\n"
                                  "checkpoint:\n"
                                  "  interval: \"5\"\n"
                                  "retry: {}\n");
    buf_clear(&out);
    text_to_json(&out, m, 2);
    assert_string_equal(out.data, "{\n"
                                  "  \"name\": \"a\",\n"
                                  "  \"tags\": [\"x\", \"y z\"],\n"
                                  "  \"data\": {\n"
                                  "    \"train\": [\n"
                                  "      {\n"
                                  "        \"path\": \"/x\",\n"
                                  "        \"weight\": 1\n"
                                  "      },\n"
                                  "      {}\n"
                                  "    ]\n"
                                  "  },\n"
                                  "  \"parallel\": {\n"
                                  "    \"data\": 2\n"
                                  "  },\n"
                                  "  \"checkpoint\": {\n"
                                  "    \"interval\": \"5\"\n"
                                  "  },\n"
                                  "  \"retry\": {}\n"
                                  "}");
    buf_free(&out);
    drop(m);
}

/* --set: one field, made with what is around it; a mistake changes no other field. */
static void set_writes_one_field_by_its_path(void **state)
{
    (void)state;
    struct error err = {0};
    ProtobufCMessage *m = parse(&job_spec__descriptor, "{name: a, training: {steps: 5}}");
    static const char *const good[][2] = {
        {"name", "b: #c"},
        {"training.steps", "1e3"},
        {"training.optimizer.betas", "[0.5, 0.6]"},
        {"data.train.0.path", "/x"},
        {"data.train.0.format", "\"u16\""},
        {"parallel", "auto"},
        {"parallel.data", "2"},
        {"tags", "[a]"},
        {"tags", "[b, c]"},
        {"training.tokens", "5"},
        {"training.tokens", "null"},
        {"tenant", "x"},
        {"tenant", "~"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (text_set(m, good[i][0], good[i][1], &err)) {
            fail_msg("%s", err.text);
        }
    }
    const char *json = "{\"name\":\"b: #c\",\"tags\":[\"b\",\"c\"],\"data\":{\"train\":[{\"path\":"
                       "\"/x\",\"format\":\"u16\"}]},\"training\":{\"steps\":1000,\"optimizer\":"
                       "{\"betas\":[0.5,0.6]}},\"parallel\":{\"data\":2}}";
    expect_json(m, json);
    static const char *const bad[][3] = {
        {"training.step", "1", "training.step: unknown field; did you mean steps?"},
        {"lr", "1", "lr: unknown field; did you mean training.optimizer.lr?"},
        {"training.steps", "x", "training.steps: wants a whole number, got \"x\""},
        {"training.steps.x", "1", "training.steps: has no fields of its own"},
        {"data.train.x", "1", "data.train.x: a list: wants an index here, from 0 on"},
        {"data.train.7.path", "1", "data.train.7: no such element, and not the next one"},
        {"data.train.0", "1", "data.train.0: wants a field behind the index"},
        {"", "1", "a field's path is empty"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(text_set(m, bad[i][0], bad[i][1], &err), -1);
        assert_string_equal(err.text, bad[i][2]);
    }
    drop(m);
}

/* What comes off the wire is text before it is printed, logged or stored. */
static void wire_strings_and_enums_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *name, *said;
    } all[] = {
        {"caf\xc3\xa9\n\t", NULL},
        {"a\x1b[2J", "name: holds a control character"},
        {"a\x7f", "name: holds a control character"},
        {"a\xc2\x9b", "name: holds a control character"},
        {"\xff", "name: is not valid UTF-8"},
        {"\xc0\x80", "name: is not valid UTF-8"},
        {"\xed\xa0\x80", "name: is not valid UTF-8"},
        {"\xf4\x90\x80\x80", "name: is not valid UTF-8"},
        {"\xe2\x82", "name: is not valid UTF-8"},
        {"01234567890123456", "name: is too long"},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct error err = {0};
        JobSpec spec = JOB_SPEC__INIT;
        spec.name = (char *)(uintptr_t)all[i].name;
        assert_int_equal(text_check_message(&spec.base, 16, &err), all[i].said ? -1 : 0);
        assert_string_equal(err.text, all[i].said ? all[i].said : "");
    }
    struct error err = {0};
    JobState states[] = {JOB_HELD, (JobState)77};
    ListJobsRequest request = LIST_JOBS_REQUEST__INIT;
    request.states = states;
    request.n_states = 2;
    assert_int_equal(text_check_message(&request.base, 16, &err), -1);
    assert_string_equal(err.text, "states.1: unknown value 77");
    SourceSpec source = SOURCE_SPEC__INIT, *sources[] = {&source};
    source.path = (char *)(uintptr_t) "\x01";
    DataSpec data = DATA_SPEC__INIT;
    data.train = sources;
    data.n_train = 1;
    JobSpec spec = JOB_SPEC__INIT;
    spec.data = &data;
    assert_int_equal(text_check_message(&spec.base, 16, &err), -1);
    assert_string_equal(err.text, "data.train.0.path: holds a control character");
}

/* Unpacked, "a" and "a NUL b" are the same C string: such a name would pass for another. Field 9 of
 * JobSpec is its data, field 2 of that the tokenizer. */
static void a_string_with_a_nul_inside_is_refused(void **state)
{
    (void)state;
    ProtobufCMessage *m;
    struct error err;
    static const struct {
        const ProtobufCMessageDescriptor *descriptor;
        const char *wire;
        size_t len;
        bool good;
    } cases[] = {
        {&job_ref__descriptor, "\x0a\x03"
                               "a\0b", 5, false},
        {&job_ref__descriptor, "\x0a\x01\0", 3, false},
        {&job_ref__descriptor, "\x0a\x01"
                               "a", 3, true},
        {&job_spec__descriptor, "\x4a\x05\x12\x03x\0y", 7, false},
        {&job_spec__descriptor, "\x4a\x05\x12\x03xzy", 7, true},
        /* Behind a number (field 6, hold) and an unknown field with NULs. */
        {&job_spec__descriptor, "\x30\x01\xfa\x7f\x02\0\0\x0a\x02n\0", 11, false},
        {&job_spec__descriptor, "\x30\x01\xfa\x7f\x02\0\0\x0a\x02nn", 11, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int rc = text_unpack(cases[i].descriptor, cases[i].wire, cases[i].len, 1 << 20, &m, &err);
        assert_int_equal(rc, cases[i].good ? 0 : -1);
        if (cases[i].good) {
            protobuf_c_message_free_unpacked(m, NULL);
        } else {
            assert_non_null(strstr(err.text, "has a NUL byte inside"));
        }
    }
}

/* Two bytes on the wire may be hundreds in memory: the cap is on memory. */
static void unpacking_is_capped_in_memory(void **state)
{
    (void)state;
    struct error err = {0};
    ProtobufCMessage *m = NULL;
    uint8_t *wire = malloc(200000);
    assert_non_null(wire);
    for (size_t i = 0; i < 200000; i += 2) {
        wire[i] = 3 << 3 | 2; /* DataSpec.train, empty */
        wire[i + 1] = 0;
    }
    assert_int_equal(text_unpack(&data_spec__descriptor, wire, 200000, 1 << 20, &m, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_int_equal(text_unpack(&data_spec__descriptor, wire, 200, 1 << 20, &m, &err), 0);
    assert_int_equal(((DataSpec *)m)->n_train, 100);
    drop(m);
    /* The same singular field again and again is merged by copying all that came before. */
    for (size_t i = 0; i < 200000; i += 4) {
        wire[i] = 9 << 3 | 2; /* JobSpec.data with one train */
        wire[i + 1] = 2;
        wire[i + 2] = 3 << 3 | 2;
        wire[i + 3] = 0;
    }
    assert_int_equal(text_unpack(&job_spec__descriptor, wire, 200000, 16 << 20, &m, &err), -1);
    assert_int_equal(text_unpack(&job_spec__descriptor, "\xff", 1, 1 << 20, &m, &err), -1);
    /* Field number 0, written long: protobuf-c reads it and can't pack it. */
    assert_int_equal(text_unpack(&job_ref__descriptor, "\x80\x00\x03", 3, 1 << 20, &m, &err), -1);
    assert_string_equal(err.text, "malformed: field number 0");
    assert_int_equal(text_unpack(&job_spec__descriptor, NULL, 0, 1 << 20, &m, &err), 0);
    drop(m);
    free(wire);
}

static void a_clone_is_equal_and_shares_nothing(void **state)
{
    (void)state;
    ProtobufCMessage *m = parse(&job_spec__descriptor, "{name: a, tags: [x], parallel: {data: 2}}");
    ProtobufCMessage *copy = text_clone(m);
    drop(m);
    expect_json(copy, "{\"name\":\"a\",\"tags\":[\"x\"],\"parallel\":{\"data\":2}}");
    assert_string_equal(((JobSpec *)copy)->priority, "normal");
    drop(copy);
}

static void the_nearest_name_is_near(void **state)
{
    (void)state;
    static const char *const names[] = {"cosine", "linear", "constant",         "wsd",
                                        "zb-h1",  "ring",   "micro_batch_size", NULL};
    static const char *const pairs[][2] = {
        {"cosin", "cosine"},
        {"COSINE", "cosine"},
        {"consine", "cosine"},
        {"lienar", "linear"},
        {"const", "constant"},
        {"zb_h1", "zb-h1"},
        {"rnig", "ring"},
        {"micro-batch", "micro_batch_size"},
        {"exponential", NULL},
        {"x", NULL},
        {"", NULL},
        {"adam", NULL},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *near = text_nearest(pairs[i][0], names);
        if (pairs[i][1]) {
            assert_non_null(near);
            assert_string_equal(near, pairs[i][1]);
        } else {
            assert_null(near);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_zero_is_set_and_an_absent_field_is_not),
        cmocka_unit_test(json_with_its_escapes_is_read),
        cmocka_unit_test(a_plain_word_fits_a_text_field_as_written),
        cmocka_unit_test(whole_numbers_are_exact),
        cmocka_unit_test(doubles_are_decimal_and_finite),
        cmocka_unit_test(mistakes_name_place_path_and_mend),
        cmocka_unit_test(anchors_aliases_and_tags_are_refused),
        cmocka_unit_test(size_and_number_of_values_are_bounded),
        cmocka_unit_test(an_empty_file_is_an_empty_message),
        cmocka_unit_test(a_choice_is_flattened),
        cmocka_unit_test(enums_are_words_without_their_prefix),
        cmocka_unit_test(bytes_are_base64),
        cmocka_unit_test(doubles_are_written_short_and_exact),
        cmocka_unit_test(strings_survive_json_and_yaml),
        cmocka_unit_test(yaml_and_json_have_the_known_form),
        cmocka_unit_test(set_writes_one_field_by_its_path),
        cmocka_unit_test(wire_strings_and_enums_are_checked),
        cmocka_unit_test(a_string_with_a_nul_inside_is_refused),
        cmocka_unit_test(unpacking_is_capped_in_memory),
        cmocka_unit_test(a_clone_is_equal_and_shares_nothing),
        cmocka_unit_test(the_nearest_name_is_near),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
