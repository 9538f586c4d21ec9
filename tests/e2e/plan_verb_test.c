/* `tandem plan` as a user runs it: no server, the real programs, a job file in a folder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/fs.h"
#include "proto/names.h"
#include "proto/text.h"

#define GOLDEN TANDEM_SOURCE_DIR "/tests/golden/llama-tiny"
#define CLUSTER TANDEM_SOURCE_DIR "/examples/cluster.yaml"
#define OUTPUT_MAX ((size_t)8 << 20)

static char tmp[64];
static char job[128];

static int setup(void **state)
{
    (void)state;
    snprintf(tmp, sizeof tmp, "/tmp/plan_verb_test.XXXXXX");
    assert_non_null(mkdtemp(tmp));
    snprintf(job, sizeof job, "%s/job.yaml", tmp);
    char link[128];
    snprintf(link, sizeof link, "%s/model", tmp);
    assert_int_equal(symlink(GOLDEN, link), 0);
    static const char text[] = "name: tiny\n"
                               "model: {path: model}\n"
                               "data: {train: [{path: model/train.bin, format: u16}]}\n"
                               "training: {steps: 20, seq_len: 12, global_batch_size: 8}\n"
                               "parallel: {data: 2}\n";
    assert_int_equal(fs_write_atomic(job, text, sizeof text - 1, 0600, NULL), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(fs_remove_tree(tmp, NULL), 0);
    return 0;
}

/* Runs `tandem plan ARGS`; both streams land in out. The exit code. */
static int tandem_plan(const char *args, struct buf *out)
{
    char command[1024];
    snprintf(command, sizeof command, "%s/tandem plan %s 2>&1 </dev/null", TANDEM_BIN_DIR, args);
    FILE *f = popen(command, "re");
    assert_non_null(f);
    buf_clear(out);
    size_t n;
    while ((n = fread(buf_reserve(out, 65536), 1, 65536, f)) > 0) {
        out->len += n;
        assert_true(out->len < OUTPUT_MAX);
    }
    buf_putc(out, 0);
    int status = pclose(f);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void assert_says(const struct buf *out, const char *part)
{
    if (!strstr(out->data, part)) {
        fail_msg("\"%s\" does not say \"%s\"", out->data, part);
    }
}

/* Relative paths count from the job file; the summary names what a user asks first. */
static void a_plan_is_shown_in_a_few_lines(void **state)
{
    (void)state;
    struct buf out = {0};
    char args[512];
    snprintf(args, sizeof args, "%s --cluster %s", job, CLUSTER);
    int code = tandem_plan(args, &out);
    assert_says(&out, "model (llama), 110k parameters, stored as F32");
    assert_int_equal(code, 0);
    assert_says(&out, "data 2 on 2 devices, fp32, backend cpu, 4 threads a rank");
    assert_says(&out, "alpha:0-1");
    assert_says(&out, "2 ranks x 4 micro-batches of 1");
    assert_says(&out, "569 kFLOP a token");
    assert_says(&out, "20 steps");
    buf_free(&out);
}

/* -o json is the whole plan, in the form in which the server answers. */
static void json_is_a_plan_reply(void **state)
{
    (void)state;
    struct buf out = {0};
    char args[512];
    snprintf(args, sizeof args, "%s --cluster %s --set parallel.data=4 -o json", job, CLUSTER);
    int code = tandem_plan(args, &out);
    ProtobufCMessage *message = NULL;
    struct error err = {0};
    if (text_parse("plan", out.data, strlen(out.data), &plan_reply__descriptor, &message, &err)) {
        fail_msg("%s in %s", err.text, out.data);
    }
    assert_int_equal(code, 0);
    const PlanReply *reply = (const PlanReply *)message;
    assert_int_equal(reply->n_plans, 1);
    const Plan *plan = reply->plans[0]->plan;
    assert_int_equal(plan->mesh->num_ranks, 4);
    assert_int_equal(plan->n_placement, 4);
    assert_string_equal(plan->placement[2]->node, "beta");
    assert_true(reply->plans[0]->step_s > 0);
    protobuf_c_message_free_unpacked(message, NULL);
    buf_free(&out);
}

/* A layout that can't be run yet is planned, drawn on its fast domains, and marked. */
static void any_layout_is_planned_and_marked(void **state)
{
    (void)state;
    struct buf out = {0};
    char args[512];
    snprintf(args, sizeof args,
             "%s --cluster %s --set parallel.tensor=4 --set parallel.pipeline=2 "
             "--set training.precision=fp16",
             job, TANDEM_SOURCE_DIR "/examples/cluster-this-host.yaml");
    int code = tandem_plan(args, &out);
    assert_says(&out, "data 2, pipeline 2, tensor 4, 1f1b on 16 devices");
    assert_says(&out, "mesh       east-fast: east0 [0 1 2 3] east1 [4 5 6 7]         data 0, "
                      "pipeline 0-1, tensor 0-3");
    assert_says(&out, "tensor    4 groups of 4, in a fast domain");
    assert_says(&out, "this plan can't be started yet:");
    assert_says(&out, "           parallel.pipeline: pipeline parallel is not built yet\n");
    assert_says(&out, "           training.precision: fp16 is not built yet\n");
    assert_int_equal(code, 0);
    snprintf(args, sizeof args, "%s --cluster %s --set parallel.tensor=3", job, CLUSTER);
    assert_int_equal(tandem_plan(args, &out), 1);
    assert_says(&out, "parallel.tensor: 3: has to divide the model's num_attention_heads 8");
    assert_says(&out, "use 2 or 4");
    buf_free(&out);
}

/* This host will do: with one rank there is a device for sure. */
static void no_cluster_means_this_host(void **state)
{
    (void)state;
    struct buf out = {0};
    char args[512];
    snprintf(args, sizeof args, "%s --set parallel.data=1", job);
    int code = tandem_plan(args, &out);
    assert_says(&out, "data 1 on 1 device, fp32, backend cpu");
    assert_says(&out, "FLOP/s a rank");
    assert_says(&out, " tokens/s, ");
    assert_int_equal(code, 0);
    /* Who means another cluster is told how to name it. */
    snprintf(args, sizeof args, "%s --set parallel.data=4096 --set training.global_batch_size=4096",
             job);
    assert_int_equal(tandem_plan(args, &out), 1);
    assert_says(&out, "--cluster FILE plans on other devices");
    buf_free(&out);
}

/* Where the data isn't, or not yet: steps and tokens say how long it is, an epoch doesn't. */
static void a_plan_needs_no_data_but_for_epochs(void **state)
{
    (void)state;
    struct buf out = {0};
    char args[512];
    snprintf(args, sizeof args, "%s --cluster %s --set data.train.0.path=nowhere/x.bin", job,
             CLUSTER);
    int code = tandem_plan(args, &out);
    assert_says(&out, "20 steps");
    assert_says(&out, "569 kFLOP a token");
    assert_says(&out, "nowhere/x.bin is not here: neither its ids nor the number of passes over it "
                      "are known");
    assert_null(strstr(out.data, "passes over the data"));
    assert_int_equal(code, 0);
    snprintf(args, sizeof args,
             "%s --cluster %s --set data.train.0.path=nowhere/x.bin --set training.steps=null "
             "--set training.epochs=1",
             job, CLUSTER);
    code = tandem_plan(args, &out);
    assert_says(&out, "nowhere/x.bin: No such file");
    assert_int_equal(code, 1);
    snprintf(args, sizeof args,
             "%s --cluster %s --set data.train.0.path=nowhere/x --set "
             "data.train.0.format=tokenized-jsonl",
             job, CLUSTER);
    code = tandem_plan(args, &out);
    assert_says(&out, "No such file");
    assert_int_equal(code, 1);
    buf_free(&out);
}

/* Who plans wants to see where the memory goes all the same; a program gets the refusal. */
static void what_does_not_fit_is_shown_and_refused(void **state)
{
    (void)state;
    struct buf out = {0};
    char args[512], cluster[160];
    static const char text[] =
        "nodes: [{name: small, devices: [{type: cpu, count: 2, mem_bytes: 5000000}]}]\n";
    snprintf(cluster, sizeof cluster, "%s/small.yaml", tmp);
    assert_int_equal(fs_write_atomic(cluster, text, sizeof text - 1, 0600, NULL), 0);
    snprintf(args, sizeof args, "%s --cluster %s", job, cluster);
    int code = tandem_plan(args, &out);
    assert_says(&out, "a rank, a device has 5.0 MB: ");
    assert_says(&out, " too little");
    assert_says(&out, "activations");
    assert_says(&out, "job.yaml: memory: device 0 of node small needs");
    assert_int_equal(code, 1);
    snprintf(args, sizeof args, "%s --cluster %s -o json", job, cluster);
    assert_int_equal(tandem_plan(args, &out), 1);
    assert_says(&out, "job.yaml: memory: device 0 of node small needs");
    assert_null(strstr(out.data, "plans"));
    buf_free(&out);
}

/* The time behind word, in milliseconds. */
static double ms_after(const struct buf *out, const char *word)
{
    char *end;
    const char *at = strstr(out->data, word);
    assert_non_null(at);
    double number = strtod(at + strlen(word), &end);
    end += strspn(end, " ");
    return strncmp(end, "ms", 2) == 0   ? number
           : strncmp(end, "us", 2) == 0 ? number / 1000
                                        : number * 1000;
}

/* One figure, wherever it is asked for. */
static void a_plan_on_gpus_says_the_time_of_its_launches(void **state)
{
    (void)state;
    struct buf out = {0};
    char args[512], cluster[128];
    snprintf(cluster, sizeof cluster, "%s/h200.yaml", tmp);
    static const char text[] = "groups:\n  - {name: g, count: 1, devices: 2, type: h200}\n";
    assert_int_equal(fs_write_atomic(cluster, text, sizeof text - 1, 0600, NULL), 0);
    snprintf(args, sizeof args, "%s --cluster %s --kernels", job, cluster);
    assert_int_equal(tandem_plan(args, &out), 0);
    double ms = ms_after(&out, "predicted ");
    assert_true(ms > 0);
    snprintf(args, sizeof args, "%s --cluster %s", job, cluster);
    assert_int_equal(tandem_plan(args, &out), 0);
    double page = ms_after(&out, "time       about ");
    assert_true(page > ms * 0.99 && page < ms * 1.01);
    snprintf(args, sizeof args, "%s --cluster %s -o json", job, cluster);
    assert_int_equal(tandem_plan(args, &out), 0);
    const char *at = strstr(out.data, "\"step_s\":"); /* the plan's cost has one, too */
    bool found = false;
    for (; at; at = strstr(at + 1, "\"step_s\":")) {
        double json = 1000 * strtod(at + strlen("\"step_s\":"), NULL);
        found = found || (json > ms * 0.99 && json < ms * 1.01);
    }
    assert_true(found);
    buf_free(&out);
}

/* The launches of a step, in three formats, said to be a prediction; on this host's cores and on
 * GPUs that a cluster file describes. */
static void launches_of_a_step_are_listed(void **state)
{
    (void)state;
    struct buf out = {0};
    char args[512], cluster[128];
    snprintf(cluster, sizeof cluster, "%s/h200.yaml", tmp);
    static const char text[] = "groups:\n  - {name: g, count: 1, devices: 2, type: h200}\n";
    assert_int_equal(fs_write_atomic(cluster, text, sizeof text - 1, 0600, NULL), 0);
    snprintf(args, sizeof args, "%s --cluster %s --kernels", job, cluster);
    assert_int_equal(tandem_plan(args, &out), 0);
    assert_says(&out, "A PREDICTION");
    assert_says(&out, "gemm q, weight");
    assert_says(&out, "all_reduce gradients");
    assert_says(&out, "2 layers x 4");
    assert_says(&out, "attention forward, ours");
    snprintf(args, sizeof args, "%s --cluster %s --kernels --attention auto -o json", job, cluster);
    assert_int_equal(tandem_plan(args, &out), 0);
    assert_says(&out, "\"is_prediction\": true");
    assert_says(&out, "attention forward, cuDNN");
    snprintf(args, sizeof args, "%s --cluster %s --kernels -o csv", job, cluster);
    assert_int_equal(tandem_plan(args, &out), 0);
    assert_int_equal(strncmp(out.data, "where,launch,shape,times,flops,bytes,", 37), 0);
    snprintf(args, sizeof args, "%s --kernels --set parallel.data=1", job);
    assert_int_equal(tandem_plan(args, &out), 0);
    assert_says(&out, "measured by tandem-probe");
    snprintf(args, sizeof args, "%s --cluster %s", job, cluster);
    assert_int_equal(tandem_plan(args, &out), 0);
    assert_says(&out, "(a prediction launch by launch; --kernels lists them)");
    assert_says(&out, "by formula, at an assumed share of the peak, ");
    /* What doesn't fit is listed, and said. */
    static const char small[] = "types:\n  - {name: h200, mem_bytes: 1000000}\n"
                                "groups:\n  - {name: g, count: 1, devices: 2, type: h200}\n";
    assert_int_equal(fs_write_atomic(cluster, small, sizeof small - 1, 0600, NULL), 0);
    snprintf(args, sizeof args, "%s --cluster %s --kernels", job, cluster);
    assert_int_equal(tandem_plan(args, &out), 1);
    assert_says(&out, "gemm q, weight");
    assert_says(&out, "memory: ");
    snprintf(args, sizeof args, "%s --kernels -o yaml", job);
    assert_int_equal(tandem_plan(args, &out), 2);
    snprintf(args, sizeof args, "%s --kernels --attention flash", job);
    assert_int_equal(tandem_plan(args, &out), 2);
    snprintf(args, sizeof args, "%s --attention own", job);
    assert_int_equal(tandem_plan(args, &out), 2);
    snprintf(args, sizeof args,
             "%s --cluster %s --kernels --set parallel.pipeline=2 "
             "--set parallel.data=1",
             job, cluster);
    assert_int_equal(tandem_plan(args, &out), 1);
    assert_says(&out, "launches are known of layouts that can be run");
    snprintf(args, sizeof args, "%s --cluster %s --kernels --set training.precision=fp16", job,
             cluster);
    assert_int_equal(tandem_plan(args, &out), 1);
    assert_says(&out, "can't be yet: training.precision: fp16 is not built yet");
    buf_free(&out);
}

/* 2: wrong use of the program. 1: the job can't be, said with the file's name. */
static void refusals_name_the_file_and_set_the_exit_code(void **state)
{
    (void)state;
    struct buf out = {0};
    char args[512];
    assert_int_equal(tandem_plan("", &out), 2);
    snprintf(args, sizeof args, "%s --frob 1", job);
    assert_int_equal(tandem_plan(args, &out), 2);
    snprintf(args, sizeof args, "%s --cluster %s --set parallel.data=8", job, CLUSTER);
    assert_int_equal(tandem_plan(args, &out), 1);
    assert_says(&out, "job.yaml: resources.devices: 8 wanted, the cluster has 4");
    snprintf(args, sizeof args, "%s --set model.path=/none", job);
    assert_int_equal(tandem_plan(args, &out), 1);
    assert_says(&out, "model.path: /none: No such file");
    snprintf(args, sizeof args, "%s --cluster %s", job, job);
    assert_int_equal(tandem_plan(args, &out), 1);
    assert_says(&out, "job.yaml:1:1");
    buf_free(&out);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_plan_is_shown_in_a_few_lines),      T(json_is_a_plan_reply),
        T(any_layout_is_planned_and_marked),    T(no_cluster_means_this_host),
        T(a_plan_needs_no_data_but_for_epochs), T(a_plan_on_gpus_says_the_time_of_its_launches),
        T(a_plan_needs_no_data_but_for_epochs), T(what_does_not_fit_is_shown_and_refused),
        T(launches_of_a_step_are_listed),       T(refusals_name_the_file_and_set_the_exit_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
