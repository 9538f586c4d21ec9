/* What the command line prints and reads, without a server. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "clients/cli/args.h"
#include "clients/cli/duration.h"
#include "clients/cli/generate.h"
#include "clients/cli/human.h"
#include "clients/cli/job.h"
#include "clients/cli/table.h"

/* ---- numbers ------------------------------------------------------------------------------- */

/* Three digits tell enough; a number never jumps back at a boundary ("1000" is "1.00k"). */
static void counts_have_three_digits_and_a_unit(void **state)
{
    (void)state;
    char h[HUMAN_MAX];
    assert_string_equal(human_count(h, 0), "0");
    assert_string_equal(human_count(h, 7), "7");
    assert_string_equal(human_count(h, 7.25), "7.2");
    assert_string_equal(human_count(h, 999), "999");
    assert_string_equal(human_count(h, 999.7), "1.00k");
    assert_string_equal(human_count(h, 12345), "12.3k");
    assert_string_equal(human_count(h, 9996), "10.0k");
    assert_string_equal(human_count(h, 999600), "1.00M");
    assert_string_equal(human_count(h, 1.24e9), "1.24B");
    assert_string_equal(human_count(h, -1), "-");
    assert_string_equal(human_count(h, NAN), "-");
}

static void bytes_and_durations_read_well(void **state)
{
    (void)state;
    char h[HUMAN_MAX];
    assert_string_equal(human_bytes(h, 512), "512 B");
    assert_string_equal(human_bytes(h, 1.2e9), "1.2 GB");
    assert_string_equal(human_bytes(h, 123456789), "123 MB");
    assert_string_equal(human_duration(h, 0.42), "0.4s");
    assert_string_equal(human_duration(h, 42), "42s");
    assert_string_equal(human_duration(h, 59.7), "1m00s");
    assert_string_equal(human_duration(h, 192), "3m12s");
    assert_string_equal(human_duration(h, 7500), "2h05m");
    assert_string_equal(human_duration(h, 3 * 86400 + 4 * 3600), "3d04h");
    assert_string_equal(human_duration(h, INFINITY), "-");
}

static void losses_keep_five_digits(void **state)
{
    (void)state;
    char h[HUMAN_MAX];
    assert_string_equal(human_value(h, 2.31454), "2.3145");
    assert_string_equal(human_value(h, 12.345678), "12.346");
    assert_string_equal(human_value(h, 0), "0");
    assert_string_equal(human_value(h, 1.5e-7), "1.5e-07");
    assert_string_equal(human_value(h, 0.00134956), "0.00135");
    assert_string_equal(human_value(h, NAN), "nan");
}

/* ---- arguments ----------------------------------------------------------------------------- */

struct parsed {
    bool follow, points_given;
    const char *series;
    int64_t points;
    struct arg_texts sets;
    const char *words[2];
    int num;
};

static struct parsed parse(const char *const *list)
{
    struct parsed p = {0};
    const struct arg_flag flags[] = {
        {"follow", 'f', ARG_BOOL, &p.follow, NULL},
        {"series", 's', ARG_TEXT, &p.series, NULL},
        {"points", 'n', ARG_INT, &p.points, &p.points_given},
        {"set", 0, ARG_TEXTS, &p.sets, NULL},
        {0},
    };
    char *argv[16];
    int argc = 0;
    for (; list[argc]; argc++) {
        argv[argc] = (char *)(uintptr_t)list[argc];
    }
    p.num = args_parse(flags, argc, argv, p.words, 2);
    return p;
}
#define PARSE(...) parse((const char *const[]){"verb", __VA_ARGS__, NULL})

static void flags_are_read_in_every_form(void **state)
{
    (void)state;
    struct parsed p =
        PARSE("job", "--series=loss,mfu", "-f", "--points", "20", "--set", "a.b=c", "--set=d=e");
    assert_int_equal(p.num, 1);
    assert_string_equal(p.words[0], "job");
    assert_true(p.follow);
    assert_string_equal(p.series, "loss,mfu");
    assert_true(p.points_given);
    assert_int_equal(p.points, 20);
    assert_int_equal(p.sets.num, 2);
    assert_string_equal(p.sets.items[0], "a.b=c");
    assert_string_equal(p.sets.items[1], "d=e");
    p = PARSE("-n5", "--", "-f");
    assert_int_equal(p.num, 1);
    assert_int_equal(p.points, 5);
    assert_string_equal(p.words[0], "-f");
    assert_false(p.follow);
}

static void bad_flags_are_refused(void **state)
{
    (void)state;
    assert_int_equal(PARSE("--folow").num, -1);
    assert_int_equal(PARSE("--points").num, -1);
    assert_int_equal(PARSE("--points", "x").num, -1);
    assert_int_equal(PARSE("--points", "-3").num, -1);
    assert_int_equal(PARSE("--points", "99999999999999999999").num, -1);
    assert_int_equal(PARSE("--follow=yes").num, -1);
    assert_int_equal(PARSE("a", "b", "c").num, -1);
    assert_int_equal(PARSE("-x").num, -1);
}

static void model_references_are_split_at_the_last_at(void **state)
{
    (void)state;
    char job[16];
    int64_t step;
    assert_true(generate_split_ref("shakespeare", job, sizeof job, &step));
    assert_int_equal(step, -1);
    assert_true(generate_split_ref("7@400", job, sizeof job, &step));
    assert_string_equal(job, "7");
    assert_int_equal(step, 400);
    assert_false(generate_split_ref("7@", job, sizeof job, &step));
    assert_false(generate_split_ref("@4", job, sizeof job, &step));
    assert_false(generate_split_ref("7@last", job, sizeof job, &step));
    assert_false(generate_split_ref("a-name-that-is-too-long", job, sizeof job, &step));
}

/* ---- tables -------------------------------------------------------------------------------- */

static const char *const columns[] = {">id", "name", "note", NULL};

static struct table *small_table(void)
{
    struct table *t = table_new(columns);
    table_cell(t, "1", NULL, NULL);
    table_cell(t, "caf\xC3\xA9", NULL, NULL);
    table_cell(t, "1.2k", "1234", "\033[32m");
    table_cell(t, "10", NULL, NULL);
    table_cell(t, "a,b \"c\"", NULL, NULL);
    table_cell(t, NULL, NULL, NULL);
    return t;
}

static void table_is_aligned_by_characters(void **state)
{
    (void)state;
    struct table *t = small_table();
    struct buf b = {0};
    table_write(t, &b, &(struct table_look){0});
    assert_string_equal(b.data, "ID  NAME     NOTE\n"
                                " 1  caf\xC3\xA9     1.2k\n"
                                "10  a,b \"c\"\n");
    buf_clear(&b);
    table_write(t, &b, &(struct table_look){.colour = true});
    assert_non_null(strstr(b.data, "\033[32m1.2k\033[0m\n"));
    buf_free(&b);
    table_free(t);
}

/* csv carries the raw numbers, and quotes what would break it. */
/* A narrow terminal cuts long words, then leaves out what matters least; lines fit in the end. */
static void a_table_gives_way_to_a_narrow_terminal(void **state)
{
    (void)state;
    static const char *const names[] = {">id", "~name", "state", "user", NULL};
    static const char *const drop[] = {"user", NULL};
    struct table *t = table_new(names);
    table_drop_first(t, drop);
    static const char *const cells[] = {
        "7",  "\xC3\xA9t\xC3\xA9-with-a-long-name", "RUNNING", "ann", "12", "short", "QUEUED",
        "bob"};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        table_cell(t, cells[i], NULL, NULL);
    }
    static const struct {
        size_t width;
        bool utf8;
        const char *expected;
    } cases[] = {
        {40, true,
         "ID  NAME                  STATE    USER\n"
         " 7  \xC3\xA9t\xC3\xA9-with-a-long-name  RUNNING  ann\n"
         "12  short                 QUEUED   bob\n"},
        {30, true,
         "ID  NAME         STATE    USER\n"
         " 7  \xC3\xA9t\xC3\xA9-with-a\xE2\x80\xA6  RUNNING  ann\n"
         "12  short        QUEUED   bob\n"},
        {30, false,
         "ID  NAME         STATE    USER\n"
         " 7  \xC3\xA9t\xC3\xA9-with-..  RUNNING  ann\n"
         "12  short        QUEUED   bob\n"},
        {22, true,
         "ID  NAME       STATE\n"
         " 7  \xC3\xA9t\xC3\xA9-with\xE2\x80\xA6  RUNNING\n"
         "12  short      QUEUED\n"},
        {3, true,
         "ID  NAME      STATE\n"
         " 7  \xC3\xA9t\xC3\xA9-wit\xE2\x80\xA6  RUNNING\n"
         "12  short     QUEUED\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b = {0};
        table_write(t, &b, &(struct table_look){.width = cases[i].width, .utf8 = cases[i].utf8});
        assert_string_equal(b.data, cases[i].expected);
        buf_free(&b);
    }
    table_free(t);
}

/* ---- spans and moments --------------------------------------------------------------------- */

static void durations_are_read_with_their_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t s;
    } good[] = {{"90d", 90 * 86400},
                {"12h", 12 * 3600},
                {"30m", 1800},
                {"45s", 45},
                {"2w", 14 * 86400},
                {"1d12h", 129600},
                {"0", 0},
                {"0s", 0},
                {"1h30m5s", 5405},
                {"36500d", (int64_t)36500 * 86400}};
    static const char *const bad[] = {"",
                                      "90",
                                      "d",
                                      "1x",
                                      "1d ",
                                      " 1d",
                                      "-1d",
                                      "30m1h",
                                      "1d1d",
                                      "1.5h",
                                      "99999999999999999999d",
                                      "36601d",
                                      "1d2",
                                      "00"};
    int64_t s;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(duration_read(good[i].text, &s));
        assert_int_equal(s, good[i].s);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (duration_read(bad[i], &s)) {
            fail_msg("\"%s\" was taken", bad[i]);
        }
    }
}

static void moments_are_days_or_spans_back(void **state)
{
    (void)state;
    int64_t us, minute_us;
    assert_true(duration_read_since("2d", 200000000000, &us));
    assert_int_equal(us, 200000000000 - (int64_t)172800 * 1000000);
    assert_true(duration_read_since("2026-03-01", 0, &us));
    assert_true(duration_read_since("2026-03-01 01:30", 0, &minute_us));
    assert_int_equal(minute_us - us, (int64_t)90 * 60 * 1000000);
    assert_true(duration_read_since("2026-03-01T01:30", 0, &us));
    assert_int_equal(us, minute_us);
    assert_false(duration_read_since("yesterday", 0, &us));
    assert_false(duration_read_since("2026-13-01", 0, &us));
    assert_false(duration_read_since("2026-03-01 x", 0, &us));
}

static void csv_is_raw_and_quoted(void **state)
{
    (void)state;
    struct table *t = small_table();
    struct buf b = {0};
    table_write(t, &b, &(struct table_look){.csv = true, .colour = true});
    assert_string_equal(b.data, "id,name,note\n1,caf\xC3\xA9,1234\n10,\"a,b \"\"c\"\"\",\n");
    buf_free(&b);
    table_free(t);
}

/* ---- jobs ---------------------------------------------------------------------------------- */

static void states_are_words(void **state)
{
    (void)state;
    assert_string_equal(job_state_word(JOB_RUNNING), "RUNNING");
    assert_string_equal(job_state_word((JobState)99), "UNKNOWN");
    assert_true(job_has_ended(JOB_CANCELLED));
    assert_false(job_has_ended(JOB_PAUSED));
}

static void layout_names_the_axes_above_one(void **state)
{
    (void)state;
    char text[128];
    ParallelSpec layout = PARALLEL_SPEC__INIT;
    ParallelChoice choice = PARALLEL_CHOICE__INIT;
    JobSpec spec = JOB_SPEC__INIT;
    choice.choice_case = PARALLEL_CHOICE__CHOICE_LAYOUT;
    choice.layout = &layout;
    job_layout(&spec, text, sizeof text);
    assert_string_equal(text, "one device");
    spec.parallel = &choice;
    layout.data = 2;
    layout.tensor = 4;
    job_layout(&spec, text, sizeof text);
    assert_string_equal(text, "data 2, tensor 4");
    layout.data = 4;
    layout.sequence_parallel = 1;
    layout.zero_stage = 3;
    job_layout(&spec, text, sizeof text);
    assert_string_equal(text, "data 4, tensor 4 with sequence parallel, ZeRO-3");
    layout.shard_size = 2;
    job_layout(&spec, text, sizeof text);
    assert_string_equal(text, "data 4, tensor 4 with sequence parallel, ZeRO-3 over 2 data ranks");
    char small[8];
    job_layout(&spec, small, sizeof small);
    assert_string_equal(small, "data 4,");
}

static void check_verbs(const struct verb *const *verbs)
{
    for (size_t i = 0; verbs[i]; i++) {
        const struct verb *v = verbs[i];
        assert_true((v->run != NULL) != (v->subverbs != NULL));
        assert_true(strlen(v->name) <= 10 && strlen(v->help) > 5 && strlen(v->text) > 5);
        assert_true(!v->args || v->args[0]); /* NULL: it takes none */
        assert_true(v->help[0] >= 'a' && v->help[0] <= 'z');
        assert_true(v->text[strlen(v->text) - 1] == '\n');
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(v->name, verbs[k]->name);
        }
        if (v->subverbs) {
            check_verbs(v->subverbs);
        }
    }
}

/* Every verb can be found, taught and listed. */
static void every_verb_has_a_name_and_help(void **state)
{
    (void)state;
    check_verbs(cli_verbs);
}

int main(void)
{
#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_have_three_digits_and_a_unit),
        cmocka_unit_test(bytes_and_durations_read_well),
        cmocka_unit_test(losses_keep_five_digits),
        cmocka_unit_test(flags_are_read_in_every_form),
        cmocka_unit_test(bad_flags_are_refused),
        cmocka_unit_test(model_references_are_split_at_the_last_at),
        cmocka_unit_test(table_is_aligned_by_characters),
        cmocka_unit_test(csv_is_raw_and_quoted),
        cmocka_unit_test(a_table_gives_way_to_a_narrow_terminal),
        cmocka_unit_test(durations_are_read_with_their_units),
        cmocka_unit_test(moments_are_days_or_spans_back),
        cmocka_unit_test(states_are_words),
        cmocka_unit_test(layout_names_the_axes_above_one),
        cmocka_unit_test(every_verb_has_a_name_and_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
