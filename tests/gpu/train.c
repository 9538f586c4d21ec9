/* gpu_train: trains without tandemd. It plans, starts tandem-rank (beside itself, or where `bin`
 * says) and hands it what tandem-node would; what the ranks say comes out as one JSON object:
 *   gpu_train model=FOLDER data=FILE format=u16 t=1024 batch=32 micro=32 steps=16 precision=bf16
 * ... device, mem (bytes): what is planned for. data_ranks=2: so many ranks; one_device=1: all of
 * them on device 0. plan=1: nothing runs. golden=1: the optimizer of the reference curves. Exit
 * status: 0 where all ranks came to their end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/fs.h"
#include "plan/kernels.h"
#include "tests/parallel/process_gang.h"

static char **words;

static const char *word(const char *name, const char *otherwise)
{
    size_t len = strlen(name);
    for (char **w = words; *w != NULL; w++)
        if (strncmp(*w, name, len) == 0 && (*w)[len] == '=')
            return *w + len + 1;
    return otherwise;
}

static int64_t number(const char *name, int64_t otherwise)
{
    const char *text = word(name, NULL);
    return text != NULL ? strtoll(text, NULL, 10) : otherwise;
}

/* What `tandem plan --kernels` would say, of this device and this choice of attention. */
static json_t *predict(const Plan *plan)
{
    struct error err = {0};
    struct kernel_table *t;
    DeviceInfo device = DEVICE_INFO__INIT, *devices[] = {&device};
    NodeInfo node = NODE_INFO__INIT, *nodes[] = {&node};
    ClusterSpec cluster = CLUSTER_SPEC__INIT;
    const char *choice = getenv("TANDEM_CUDA_ATTENTION");
    enum kernel_attention attention = KERNEL_ATTENTION_AUTO;
    for (int i = 0; choice != NULL && kernel_attention_names[i] != NULL; i++)
        if (strcmp(choice, kernel_attention_names[i]) == 0)
            attention = (enum kernel_attention)i;
    device.type = (char *)(uintptr_t)word("device", "h100");
    node.name = plan->n_placement > 0 ? plan->placement[0]->node : NULL;
    node.n_devices = cluster.n_nodes = 1;
    node.devices = devices;
    cluster.nodes = nodes;
    if (kernel_table_new(&t, plan, &cluster, attention, &err) != 0) {
        fprintf(stderr, "gpu_train: no prediction: %s\n", err.text);
        return json_null();
    }
    json_t *by_op = json_object();
    for (size_t i = 0; i < t->num_rows; i++) {
        const char *op = launch_op_names[t->rows[i].launch.op];
        double ms = json_number_value(json_object_get(by_op, op)) + 1e3 * t->rows[i].seconds;
        json_object_set_new(by_op, op, json_real(ms));
    }
    json_t *out = json_pack("{s:f, s:f, s:f, s:f, s:I, s:o}", "ms", 1e3 * t->step_s, "device_ms",
                            1e3 * t->device_s, "host_ms", 1e3 * t->host_s, "mfu", t->mfu,
                            "launches", (json_int_t)t->num_launches, "by_op_ms", by_op);
    kernel_table_free(t);
    return out;
}

static json_t *describe_plan(const Plan *plan)
{
    const MemoryEstimate *m = plan->memory;
    return json_pack("{s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I}", "num_params",
                     (json_int_t)plan->model->num_params, "flops_per_token", plan->flops_per_token,
                     "peak_flops", plan->peak_flops, "total_bytes", (json_int_t)m->total_bytes,
                     "overhead_bytes", (json_int_t)m->overhead_bytes, "host_bytes",
                     (json_int_t)m->host_bytes, "layers",
                     (json_int_t)plan->model->config->num_hidden_layers, "mem_bytes",
                     (json_int_t)number("mem", 0));
}

static json_t *describe_steps(const struct process_gang *g)
{
    json_t *steps = json_array();
    for (int64_t i = 0; i < g->num_steps; i++) {
        const StepMetrics *m = &g->steps[i];
        json_array_append_new(steps,
                              json_pack("{s:I, s:f, s:f, s:f}", "step", (json_int_t)m->step, "loss",
                                        m->loss, "norm", m->grad_norm, "ms", m->step_ms));
    }
    return steps;
}

/* The end of a rank's log: where it was killed its words are there and nowhere else. */
static char *end_of_log(const struct process_gang *g, int rank)
{
    char path[600], *text;
    size_t len;
    snprintf(path, sizeof(path), "%s/rank-%d.log", g->job_dir, rank);
    if (fs_read_file(path, 4 << 20, &text, &len, NULL) != 0)
        return strdup("");
    char *end = strndup(text + (len > 600 ? len - 600 : 0), 600);
    for (char *c = end; *c != 0; c++) /* what isn't ASCII is no JSON */
        *c = *c == '\n' || (*c >= 32 && *c < 127) ? *c : '?';
    free(text);
    return end;
}

static int run(struct process_gang *g, json_t *out)
{
    int num_bad = 0;
    json_t *faults = json_array();
    process_gang_run(g);
    for (int i = 0; i < g->num_ranks; i++) {
        const struct process_gang_rank *r = &g->ranks[i];
        if (r->status == 0 && r->done)
            continue;
        char *end = end_of_log(g, i);
        json_array_append_new(faults, json_pack("{s:i, s:i, s:s, s:s}", "rank", i, "status",
                                                r->status, "words", r->fault, "log", end));
        free(end);
        num_bad++;
    }
    json_object_set_new(out, "steps", describe_steps(g));
    json_object_set_new(out, "faults", faults);
    json_object_set_new(out, "used_bytes", json_integer((json_int_t)g->memory.used_bytes));
    return num_bad;
}

static void put_on_one_device(Plan *plan)
{
    for (size_t i = 0; i < plan->n_placement; i++) {
        plan->placement[i]->has_device = 1;
        plan->placement[i]->device = 0;
    }
}

static Plan *make_plan(void)
{
    bool is_golden = number("golden", 0) != 0;
    struct golden shape = {.name = "gpu", .batch = number("batch", 1), .seq_len = number("t", 32)};
    struct gang_spec spec = {
        .golden = &shape,
        .data = number("data_ranks", 1),
        .micro = number("micro", 1),
        .steps = number("steps", 8),
        .backend = word("backend", "cuda"),
        .precision = word("precision", "bf16"),
        .model_path = word("model", "."),
        .data_path = word("data", "train.bin"),
        .format = word("format", "u16"),
        .device = word("device", NULL),
        .mem_bytes = number("mem", 0),
        .bucket_mb = is_golden ? NULL : "32",
        .lr_schedule = is_golden ? NULL : "warmup_steps: 1, decay: constant",
    };
    return gang_plan(&spec);
}

int main(int argc, char **argv)
{
    char self[600];
    (void)argc;
    words = argv + 1;
    gang_quiet();
    snprintf(self, sizeof(self), "%s", argv[0]);
    Plan *plan = make_plan();
    if (number("one_device", 0) != 0)
        put_on_one_device(plan);
    json_t *out = json_pack("{s:o, s:o}", "plan", describe_plan(plan), "predicted", predict(plan));
    int num_bad = 0;
    if (number("plan", 0) == 0) {
        char *dir = gang_make_dir();
        struct process_gang g = {.plan = plan,
                                 .job_dir = dir,
                                 .bin_dir = word("bin", dirname(self)),
                                 .deadline_ms = 1000 * number("deadline", 600)};
        num_bad = run(&g, out);
        gang_remove_dir(dir);
    }
    json_dumpf(out, stdout, JSON_COMPACT | JSON_SORT_KEYS);
    printf("\n");
    json_decref(out);
    plan__free_unpacked(plan, NULL);
    return num_bad > 0;
}
