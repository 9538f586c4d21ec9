/* Job files on their way from the command line to the server: paths, and where faults stand. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "clients/cli/job_file.h"

struct folder {
    char dir[64], file[128], cwd[PATH_MAX];
};

static int make_folder(void **state)
{
    struct folder *f = calloc(1, sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/cli_test.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->file, sizeof f->file, "%s/job.yaml", f->dir);
    assert_non_null(getcwd(f->cwd, sizeof f->cwd));
    *state = f;
    return 0;
}

static int remove_folder(void **state)
{
    struct folder *f = *state;
    fs_remove_tree(f->dir, NULL);
    free(f);
    return 0;
}

static void write_job(const struct folder *f, const char *text)
{
    assert_int_equal(fs_write_atomic(f->file, text, strlen(text), 0644, NULL), 0);
}

/* Paths of the file count from its folder, those given on the command line from here. */
static void relative_paths_become_absolute(void **state)
{
    struct folder *f = *state;
    write_job(f, "name: x\n"
                 "model: {path: ./models/tiny}\n"
                 "data:\n  train:\n    - {path: a.txt, format: text}\n"
                 "    - {path: /abs/b.txt, format: text}\n"
                 "  validation:\n    - {path: ../c.txt, format: text}\n");
    const char *sets[] = {"training.steps=5", "data.train.0.path=here.txt"};
    struct error err;
    struct job_file job;
    char expected[PATH_MAX + 64];
    assert_int_equal(job_file_read(&job, f->file, NULL, 0, &err), 0);
    snprintf(expected, sizeof expected, "%s/models/tiny", f->dir);
    assert_string_equal(job.spec->model->path, expected);
    snprintf(expected, sizeof expected, "%s/a.txt", f->dir);
    assert_string_equal(job.spec->data->train[0]->path, expected);
    assert_string_equal(job.spec->data->train[1]->path, "/abs/b.txt");
    snprintf(expected, sizeof expected, "%s/../c.txt", f->dir);
    assert_string_equal(job.spec->data->validation[0]->path, expected);
    assert_string_equal(job.spec->data->tokenizer, "bytes");
    job_file_free(&job);

    assert_int_equal(job_file_read(&job, f->file, sets, 2, &err), 0);
    snprintf(expected, sizeof expected, "%s/here.txt", f->cwd);
    assert_string_equal(job.spec->data->train[0]->path, expected);
    assert_int_equal(job.spec->training->steps, 5);
    job_file_free(&job);
}

/* A fault in the file is told with its place; one in --set with its text. */
static void faults_are_told_with_their_place(void **state)
{
    struct folder *f = *state;
    struct error err;
    struct job_file job;
    write_job(f, "name: x\ntraining:\n  stpes: 3\n");
    assert_int_equal(job_file_read(&job, f->file, NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "job.yaml:3:3"));
    assert_non_null(strstr(err.text, "steps"));
    write_job(f, "name: x\n");
    const char *const bad[] = {"steps", "=3", "training.stpes=3", "training.steps=many"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(job_file_read(&job, f->file, &bad[i], 1, &err), -1);
        assert_non_null(strstr(err.text, "--set"));
    }
    assert_int_equal(job_file_read(&job, "/nowhere/job.yaml", NULL, 0, &err), -1);
    assert_non_null(strstr(err.text, "/nowhere/job.yaml"));
}

/* What the server finds wrong with a field is told with the place where the user wrote it. */
static void faults_found_later_are_told_with_their_place(void **state)
{
    struct folder *f = *state;
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"training.steps: 0; wants more", "job.yaml:3:3: training.steps: 0; wants more"},
        {"training.seq_len: required", "job.yaml:2:1: training.seq_len: required"},
        {"data.train.0.format: unknown", "job.yaml:6:21: data.train.0.format: unknown"},
        {"data.train: one source", "job.yaml:5:3: data.train: one source"},
        {"retry.max_restarts: x", "job.yaml: retry.max_restarts: x"},
        {"training.optimizer.lr: x", "--set training.optimizer.lr=9: training.optimizer.lr: x"},
        {"training.optimizer: x", "--set training.optimizer.lr=9: training.optimizer: x"},
        {"parallel.data: x", "--set parallel={data: 3}: parallel.data: x"},
        {"training.optimizer.lr_x: y", "job.yaml:2:1: training.optimizer.lr_x: y"},
        {"job 7: no such field", "job 7: no such field"},
        {"spec: missing", "spec: missing"},
        {"the disk is full", "the disk is full"},
    };
    const char *sets[] = {"training.optimizer.lr=9", "parallel={data: 3}"};
    struct job_file job;
    struct error err;
    write_job(
        f, "name: x\ntraining:\n  steps: 0\ndata:\n  train:\n    - {path: a.txt, format: text}\n");
    assert_int_equal(job_file_read(&job, f->file, sets, 2, &err), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        error_set(&err, ERR_INVALID_ARGUMENT, "%s", cases[i].text);
        job_file_place(&job, &err);
        const char *text = err.text;
        if (strncmp(text, f->dir, strlen(f->dir)) == 0) {
            text += strlen(f->dir) + 1;
        }
        assert_string_equal(text, cases[i].expected);
    }
    job_file_free(&job);
}

int main(void)
{
#define IN_FOLDER(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(relative_paths_become_absolute),
        IN_FOLDER(faults_are_told_with_their_place),
        IN_FOLDER(faults_found_later_are_told_with_their_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
