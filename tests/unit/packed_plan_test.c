/* What a look at a file of packed rows finds, and what a plan makes of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data_case.h"
#include "model/family.h"
#include "plan_case.h"
#include "runtime/data/row_facts.h"

static char *path;
static struct plan_case *c;

static int make_dir(void **state)
{
    (void)state;
    path = data_case_make("train.jsonl");
    return 0;
}

static int new_case(void **state)
{
    (void)state;
    c = plan_case_new();
    c->source.format = (char *)"tokenized-jsonl";
    c->source.path = path;
    return 0;
}

static int free_case(void **state)
{
    (void)state;
    plan_case_free(c);
    return 0;
}

static void look(DataFacts *facts)
{
    struct error err = {0};
    data_facts__init(facts);
    facts->path = path;
    facts->format = (char *)"tokenized-jsonl";
    if (row_facts(NULL, path, facts, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void look_fails(const char *words)
{
    DataFacts facts = DATA_FACTS__INIT;
    struct error err = {0};
    assert_int_equal(row_facts(NULL, path, &facts, &err), -1);
    if (!strstr(err.text, words)) {
        fail_msg("says \"%s\", wanted \"%s\"", err.text, words);
    }
}

static const char three[] =
    "{\"input_ids\":[7,8,9],\"labels\":[8,-100,50],\"segment_ids\":[3,3,4]}\n"
    "{\"input_ids\":[1,2,3,4,5,6],\"labels\":[2,3,4,5,6,7]}\n"
    "{\"input_ids\":[1,2,0,0,0,0,0],\"labels\":[2,-100,-100,-100,-100,-100,-100],"
    "\"attention_mask\":[1,1,0,0,0,0,0]}\n";

static void a_look_counts_rows_tokens_targets_and_what_is_attended_to(void **state)
{
    (void)state;
    DataFacts f;
    data_case_write_text(three);
    look(&f);
    assert_int_equal(f.size_bytes, sizeof three - 1);
    assert_int_equal(f.num_rows, 3);
    assert_int_equal(f.scanned_rows, 3);
    assert_int_equal(f.num_tokens, 3 + 6 + 2);
    assert_int_equal(f.num_targets, 2 + 6 + 1);
    assert_int_equal(f.longest_row, 6);
    assert_int_equal(f.longest_row_line, 2);
    assert_int_equal(f.max_token, 50);
    assert_int_equal(f.max_position, 5);
    assert_true(fabs(f.mean_attended - (1 + 2 + 1 + 21 + 3) / 11.0) < 1e-15);
}

/* Any vocabulary is possible as long as the model isn't looked at; a wrong row is said at once. */
static void a_look_refuses_a_wrong_row_by_its_line(void **state)
{
    (void)state;
    DataFacts f;
    data_case_write_text("{\"input_ids\":[2147483647],\"labels\":[0]}");
    look(&f);
    assert_int_equal(f.max_token, INT32_MAX);
    data_case_write_text("{\"input_ids\":[1],\"labels\":[0]}\n{\"input_ids\":[1],\"labels\":[-1]}");
    look_fails("train.jsonl:2: labels[0] is -1; wants -100 (no target) or an id from 0 to "
               "2147483647");
    data_case_write_text("{\"input_ids\":[1],\"labels\":[0]}\nnull");
    look_fails("train.jsonl:2: \"n\" stands where the { of");
}

/* Hugging Face's models shift labels themselves. Left like that a model would learn to repeat. */
static void labels_that_are_not_shifted_are_refused(void **state)
{
    (void)state;
    DataFacts f;
    data_case_write_text("{\"input_ids\":[1,2,3,4,5,6,7,8],\"labels\":[-100,2,3,4,5,6,7,8]}\n"
                         "{\"input_ids\":[8,7,6,5,4,3,2,1,0],\"labels\":[8,7,6,5,4,3,2,1,0]}\n");
    look_fails("each of its 16 labels is the id at its own place, so they are not shifted");
    /* Too few to say; or one is another. */
    data_case_write_text("{\"input_ids\":[1,2,3,4,5,6,7,8],\"labels\":[1,2,3,4,5,6,7,8]}\n");
    look(&f);
    data_case_write_text("{\"input_ids\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"labels\":"
                         "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,9]}");
    look(&f);
    /* A text of one word: its next id is its own. */
    data_case_write_text("{\"input_ids\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"labels\":"
                         "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,-100]}");
    look(&f);
}

static bool has_note(const Plan *p, const char *words)
{
    bool said = false;
    for (size_t i = 0; i < p->n_notes; i++) {
        said = said || strstr(p->notes[i], words);
    }
    return said;
}

/* An epoch is all rows; a token's FLOPs follow from its documents. */
static void a_row_is_a_sample_of_the_plan(void **state)
{
    (void)state;
    data_case_write_text(three);
    look(&c->data_facts);
    c->training.has_steps = 0;
    c->training.has_epochs = 1;
    c->training.epochs = 8;
    Plan *p = plan_case_build(c);
    assert_int_equal(p->samples_per_epoch, 3);
    assert_int_equal(p->total_steps, 3);
    assert_true(plan_can_ignore_targets(p));
    assert_true(p->flops_per_token ==
                family_flops_per_token(p->model->config, c->data_facts.mean_attended));
    assert_true(has_note(p, "rows hold 3.667 of 12 tokens on average; 81.8 % of the tokens have a "
                            "target, and one attends to 2.545 on average"));
    assert_int_equal(p->stages[0]->actions[0]->kind, ACTION_COUNT_TARGETS);
    plan__free_unpacked(p, NULL);
    c->data_facts.num_rows = 30;
    p = plan_case_build(c);
    assert_true(has_note(p, "only the first 3 of 30 rows were looked at"));
    plan__free_unpacked(p, NULL);
}

static void rows_that_do_not_fit_the_job_are_refused_at_submit(void **state)
{
    (void)state;
    data_case_write_text(three);
    look(&c->data_facts);
    c->training.seq_len = 5;
    plan_case_refused(c, "train.jsonl:2: the row has 6 tokens, training.seq_len is 5; cut the row, "
                         "or raise seq_len");
    c->training.seq_len = 12;
    c->config.vocab_size = 50;
    plan_case_refused(c, "train.jsonl:1: labels holds token 50, the model's vocab_size is 50");
    data_case_write_text(
        "{\"input_ids\":[1,2],\"labels\":[2,3]}\n{\"input_ids\":[1,60],\"labels\":[60,3]}\n"
        "{\"input_ids\":[60],\"labels\":[-100]}");
    look(&c->data_facts);
    plan_case_refused(c, "train.jsonl:2: input_ids holds token 60, the model's vocab_size is 50");
    data_case_write_text(three);
    look(&c->data_facts);
    c->config.vocab_size = 256;
    data_case_write_text("{\"input_ids\":[1],\"labels\":[0],\"position_ids\":[12]}");
    look(&c->data_facts);
    plan_case_refused(c, "holds position 12; with training.seq_len 12 it may be 11 at most");
    data_case_write_text(
        "{\"input_ids\":[1],\"labels\":[-100]}\n{\"input_ids\":[1],\"labels\":[-100]}");
    look(&c->data_facts);
    plan_case_refused(c, "every label of its 2 rows is -100, so there is nothing to learn");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_counts_rows_tokens_targets_and_what_is_attended_to),
        cmocka_unit_test(a_look_refuses_a_wrong_row_by_its_line),
        cmocka_unit_test(labels_that_are_not_shifted_are_refused),
        cmocka_unit_test_setup_teardown(a_row_is_a_sample_of_the_plan, new_case, free_case),
        cmocka_unit_test_setup_teardown(rows_that_do_not_fit_the_job_are_refused_at_submit,
                                        new_case, free_case),
    };
    return cmocka_run_group_tests(tests, make_dir, data_case_remove);
}
