/* What `tandem nodes` draws: whole tables, as people see them. */
#include "clients/cli/node_rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "plan/cluster.h"

static ClusterSpec *parse(const char *text)
{
    ClusterSpec *c = NULL;
    struct error err = {0};
    if (cluster_parse("c.yaml", text, strlen(text), &c, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return c;
}

static void assert_table(struct table *t, const char *wanted)
{
    struct buf b = {0};
    table_write(t, &b, &(struct table_look){0});
    assert_string_equal(b.data, wanted);
    buf_free(&b);
    table_free(t);
}

static void assert_rows(const char *text, const char *wanted)
{
    ClusterSpec *c = parse(text);
    assert_table(node_rows_new(c), wanted);
    cluster_spec__free_unpacked(c, NULL);
}

/* Thousands of nodes fit a screen as long as they are alike. */
static void nodes_that_are_alike_are_one_row(void **state)
{
    (void)state;
    assert_rows(
        "groups: [{name: dgx, count: 2048, devices: 8, type: h100, nodes_per_leaf: 16},\n"
        "  {name: rack, count: 36, devices: 4, type: gb200, nodes_per_domain: 18,\n"
        "   nodes_per_leaf: 18}]",
        "NODE          DEVICES  TYPE    FREE  USED  CLAIMED  DRAINED  DOMAIN            LEAF\n"
        "dgx[0-2047]  2048 x 8  h100   16384     .        .        .                    "
        "dgx-leaf[0-127]\n"
        "rack[0-35]     36 x 4  gb200    144     .        .        .  rack-domain[0-1]  "
        "rack-leaf[0-1]\n");
}

/* What differs in anything shown stands by itself, and what is between two that are alike parts
 * them. */
static void a_node_that_differs_parts_the_others(void **state)
{
    (void)state;
    assert_rows(
        "nodes:\n"
        "  - {name: n0, devices: [{count: 4}]}\n"
        "  - {name: n1, devices: [{count: 4}]}\n"
        "  - {name: n2, devices: [{count: 4, job_id: 7}]}\n"
        "  - {name: n3, devices: [{count: 4, job_id: 7}]}\n"
        "  - {name: n4, devices: [{job_id: 7}, {job_id: -1}, {claimed_by: 9}, {}]}\n"
        "  - {name: n5, devices: [{count: 2}, {drained: true, reason: hot}, {}]}\n"
        "  - {name: n6, devices: [{count: 4}]}\n"
        "  - {name: n8, devices: [{count: 4}]}\n"
        "  - {name: m9, devices: [{count: 4}]}\n",
        "NODE    DEVICES  TYPE  FREE  USED  CLAIMED  DRAINED  USE                            "
        "   REASON\n"
        "n[0-1]    2 x 4  cpu      8     .        .        .\n"
        "n[2-3]    2 x 4  cpu      .     8        .        .  job 7\n"
        "n4            4  cpu      1     2        1        .  job 7, in use, claimed for "
        "job 9\n"
        "n5            4  cpu      3     .        .        1                             "
        "       2: hot\n"
        "n6            4  cpu      4     .        .        .\n"
        "n8            4  cpu      4     .        .        .\n"
        "m9            4  cpu      4     .        .        .\n");
}

/* An operator sees why each device is out, and that a job still runs on one that is drained. */
static void drained_devices_have_their_reasons(void **state)
{
    (void)state;
    assert_rows("nodes:\n"
                "  - {name: a, devices: [{count: 3, drained: true, reason: moved}]}\n"
                "  - {name: b, devices: [{count: 2, drained: true, reason: hot}, {},\n"
                "      {drained: true, job_id: 3}]}\n",
                "NODE  DEVICES  TYPE  FREE  USED  CLAIMED  DRAINED  USE    REASON\n"
                "a           3  cpu      .     .        .        3         moved\n"
                "b           4  cpu      1     1        .        3  job 3  0-1: hot; 3: no reason "
                "given\n");
    ClusterSpec *c = parse("nodes: [{name: b, switches: [l], devices: [{domain: d}, {drained: true,"
                           " job_id: 3}, {claimed_by: -1, mem_bytes: 1000000000,"
                           " peak_flops_fp32: 2.5e12}]}]");
    assert_table(
        node_rows_devices((const NodeInfo *const *)c->nodes, c->n_nodes),
        "DEVICE  TYPE  USE             MEMORY    PEAK_FP32  DOMAIN  LEAF  REASON\n"
        "b:0     cpu   free                 -            -  d       l\n"
        "b:1     cpu   job 3, drained       -            -  b       l     no reason given\n"
        "b:2     cpu   claimed         1.0 GB  2.5 TFLOP/s  b       l\n");
    cluster_spec__free_unpacked(c, NULL);
}

static void numbers_with_leading_zeros_are_no_run(void **state)
{
    (void)state;
    assert_rows("nodes:\n"
                "  - {name: n007, devices: [{}]}\n"
                "  - {name: n008, devices: [{}]}\n"
                "  - {name: n9, devices: [{}]}\n"
                "  - {name: n10, devices: [{}]}\n",
                "NODE     DEVICES  TYPE  FREE  USED  CLAIMED  DRAINED\n"
                "n007           1  cpu      1     .        .        .\n"
                "n008           1  cpu      1     .        .        .\n"
                "n[9-10]    2 x 1  cpu      2     .        .        .\n");
}

/* ---- the program itself, without a server ---- */

/* What the command line says, both streams; it ends with code. */
static void run(const char *words, int code, char *out, size_t size)
{
    char command[1024];
    snprintf(command, sizeof command, "%s " TANDEM_BIN_DIR "/tandem nodes %s 2>&1",
             "LD_LIBRARY_PATH=" TANDEM_BIN_DIR "/fake-nvml TANDEM_FAKE_NVML=lost", words);
    FILE *p = popen(command, "r");
    assert_non_null(p);
    out[fread(out, 1, size - 1, p)] = 0;
    assert_int_equal(WEXITSTATUS(pclose(p)), code);
}

#define THIS_HOST " --cluster " TANDEM_SOURCE_DIR "/examples/cluster-this-host.yaml "

static void the_verb_reads_a_cluster_file(void **state)
{
    (void)state;
    char out[8192];
    run(THIS_HOST "west1", 0, out, sizeof out);
    assert_non_null(strstr(out, "west1:3"));
    assert_null(strstr(out, "west0"));
    assert_non_null(strstr(out, "4 of 4 devices are free"));
    run(THIS_HOST "wst1", 1, out, sizeof out);
    assert_non_null(strstr(out, "no node is called wst1; did you mean west1?"));
}

/* Who writes a cluster file begins with what is there. */
static void the_verb_tells_of_this_host(void **state)
{
    (void)state;
    char out[8192];
    run("--host", 0, out, sizeof out);
    assert_non_null(strstr(out, "GPU 3 does not answer: GPU is lost"));
    assert_non_null(strstr(out, "7 of 7 devices are free"));
    run("--host -o yaml" THIS_HOST, 0, out, sizeof out);
    assert_non_null(strstr(out, "type: h100"));
    assert_non_null(strstr(out, "has 7 GPUs, and no node of the cluster file is called so"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_that_are_alike_are_one_row),
        cmocka_unit_test(a_node_that_differs_parts_the_others),
        cmocka_unit_test(drained_devices_have_their_reasons),
        cmocka_unit_test(numbers_with_leading_zeros_are_no_run),
        cmocka_unit_test(the_verb_reads_a_cluster_file),
        cmocka_unit_test(the_verb_tells_of_this_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
