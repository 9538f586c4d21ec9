/* tandem explain, through the program: it needs no server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/buf.h"

/* Runs it; stdout and stderr together. */
static char *explain(const char *args, int *code)
{
    char command[1024], part[4096];
    struct buf out = {0};
    snprintf(command, sizeof command, "'%s/tandem' explain %s 2>&1", TANDEM_BIN_DIR, args);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) {
        buf_append(&out, part, n);
    }
    int status = pclose(f);
    assert_true(WIFEXITED(status));
    *code = WEXITSTATUS(status);
    return buf_take(&out);
}

static void expect(const char *args, int code, const char *output)
{
    int got;
    char *out = explain(args, &got);
    assert_string_equal(out, output);
    assert_int_equal(got, code);
    free(out);
}

static void a_field_is_shown_with_type_default_and_values(void **state)
{
    (void)state;
    expect("training.optimizer.betas", 0,
           "training.optimizer.betas: list of numbers, default [0.9, 0.95]\n"
           "  Decay of the two moments of adamw; default [0.9, 0.95].\n"
           "  May be: from 0 to below 1.\n");
    expect("training.lr_schedule.decay", 0,
           "training.lr_schedule.decay: word, default cosine\n"
           "  cosine, linear, constant or wsd (constant, then linear over the last decay_steps).\n"
           "  May be: cosine, linear, constant, wsd.\n");
    expect("training.seq_len", 0,
           "training.seq_len: whole number, required\n"
           "  Tokens a sample. Required.\n"
           "  May be: 1 to 16777216.\n");
}

/* What isn't built is said to be, before someone writes a job file with it. */
static void what_is_not_built_is_marked(void **state)
{
    (void)state;
    expect("parallel.pipeline", 0,
           "parallel.pipeline: whole number, default 1\n"
           "  Pipeline stages. More than 1: later.\n"
           "  May be: not built: only 1.\n");
    expect("spikes.action", 0,
           "spikes.action: word, default \"off\"\n"
           "  off, warn, rollback or stop.\n"
           "  May be: off (not built: warn, rollback, stop).\n");
}

/* FSDP's names stand beside the numbers. */
static void numbers_with_names_are_explained(void **state)
{
    (void)state;
    expect("parallel.zero_stage", 0,
           "parallel.zero_stage: whole number, default 0\n"
           "  0, or what is sharded over the data ranks: 1 optimizer, 2 and gradients, 3 and "
           "weights.\n"
           "  Also by FSDP's names, in either case: NO_SHARD is 0, SHARD_GRAD_OP 2, FULL_SHARD 3, "
           "and\n"
           "  HYBRID_SHARD 3 with a shard_size.\n"
           "  May be: 0 to 3, HYBRID_SHARD, NO_SHARD, SHARD_GRAD_OP, FULL_SHARD.\n");
}

/* People know the last name, or paste a path with an index. */
static void a_last_name_and_an_index_are_understood(void **state)
{
    (void)state;
    int code;
    char *by_name = explain("weight_decay", &code), *by_path;
    assert_int_equal(code, 0);
    by_path = explain("training.optimizer.weight_decay", &code);
    assert_string_equal(by_name, by_path);
    free(by_name);
    free(by_path);
    by_name = explain("data.train.0.window", &code);
    by_path = explain("data.train.window", &code);
    assert_int_equal(code, 0);
    assert_string_equal(by_name, by_path);
    free(by_name);
    free(by_path);
    by_name = explain("interval", &code);
    assert_non_null(strstr(by_name, "checkpoint.interval: "));
    assert_non_null(strstr(by_name, "evaluation.interval: "));
    free(by_name);
}

static void a_typo_is_answered_with_the_nearest_name(void **state)
{
    (void)state;
    expect("training.dropot", 2,
           "tandem explain: a job file has no field \"training.dropot\"; did you mean "
           "training.dropout?\nTry: tandem explain --help\n");
    expect("micro_batch_siz", 2,
           "tandem explain: a job file has no field \"micro_batch_siz\"; did you mean "
           "training.micro_batch_size?\nTry: tandem explain --help\n");
    expect("xyzzy", 2,
           "tandem explain: a job file has no field \"xyzzy\"; `tandem explain` lists them\n"
           "Try: tandem explain --help\n");
}

static void the_list_has_every_field(void **state)
{
    (void)state;
    int code;
    static const char *const formats[] = {"", "-o csv", "-o json"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char *out = explain(formats[i], &code);
        assert_int_equal(code, 0);
        assert_non_null(strstr(out, "training.lr_schedule.min_lr_ratio"));
        assert_non_null(strstr(out, "spikes.threshold"));
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_is_shown_with_type_default_and_values),
        cmocka_unit_test(what_is_not_built_is_marked),
        cmocka_unit_test(numbers_with_names_are_explained),
        cmocka_unit_test(a_last_name_and_an_index_are_understood),
        cmocka_unit_test(a_typo_is_answered_with_the_nearest_name),
        cmocka_unit_test(the_list_has_every_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
