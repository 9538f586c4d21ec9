#include "clients/cli/plan_kernels.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "clients/cli/human.h"
#include "clients/cli/table.h"

/* ---- words ---------------------------------------------------------------------------------- */

/* "16384 x 768 x 2304" */
static const char *shape_words(char out[96], const struct kernel_row *row)
{
    const struct launch *l = &row->launch;
    size_t at = 0;
    if (row->mixed) {
        snprintf(out, 96, "%.4g on average", row->numel / (double)row->times);
        return out;
    }
    out[0] = 0;
    for (int i = 0; i < LAUNCH_SIZES && l->size[i] > 0; i++) {
        at += (size_t)snprintf(out + at, 96 - at, "%s%lld", i ? " x " : "", (long long)l->size[i]);
    }
    return out;
}

/* "32 layers x 8": of a step, once or twice in each layer and micro-batch. */
static const char *times_words(char out[64], int64_t times, const Plan *plan)
{
    int64_t layers = plan->model->config->num_hidden_layers, micro = plan->micro_batches;
    int64_t each = layers * micro, in_each = times / each;
    if (layers < 2 || times % each != 0) {
        snprintf(out, 64, "%lld", (long long)times);
        return out;
    }
    size_t at = in_each > 1 ? (size_t)snprintf(out, 64, "%lld x ", (long long)in_each) : 0;
    at += (size_t)snprintf(out + at, 64 - at, "%lld layers", (long long)layers);
    if (micro > 1) {
        snprintf(out + at, 64 - at, " x %lld", (long long)micro);
    }
    return out;
}

static const char *name_words(char out[96], const struct launch *l)
{
    snprintf(out, 96, "%s%s%s%s", launch_op_names[l->op], *l->what ? " " : "", l->what,
             l->op == LAUNCH_GEMM && !l->even ? " (uneven)" : "");
    return out;
}

static const char *seconds_words(char out[HUMAN_MAX], double s)
{
    double n = s < 1e-3 ? s * 1e6 : s < 1 ? s * 1e3 : s;
    snprintf(out, HUMAN_MAX, "%.3g %s", n, s < 1e-3 ? "us" : s < 1 ? "ms" : "s");
    return out;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static void put_number(struct table *t, const char *human, double n)
{
    char raw[32];
    snprintf(raw, sizeof raw, "%.9g", n);
    table_cell(t, human, raw, NULL);
}

static void put_row(struct table *t, const struct kernel_row *row, const struct kernel_table *k,
                    const Plan *plan)
{
    const struct launch *l = &row->launch;
    char text[96], times[64], n[HUMAN_MAX];
    double each = (double)row->times;
    table_cell(t, launch_place_names[l->place], NULL, NULL);
    table_cell(t, name_words(text, l), NULL, NULL);
    table_cell(t, shape_words(text, row), NULL, NULL);
    put_number(t, times_words(times, row->times, plan), each);
    put_number(t, l->flops > 0 ? human_metric(n, row->flops / each, "") : "-", row->flops / each);
    put_number(t, human_bytes(n, row->bytes / each), row->bytes / each);
    put_number(t, seconds_words(n, row->seconds / each), row->seconds / each);
    put_number(t, seconds_words(n, row->seconds), row->seconds);
    snprintf(text, sizeof text, "%.1f %%", 100 * row->seconds / k->step_s);
    put_number(t, text, row->seconds / k->step_s);
    table_cell(t, kernel_bound_names[row->bound], NULL, NULL);
    table_cell(t,
               l->stream == LAUNCH_COMPUTE
                   ? l->captured && strcmp(plan->backend, "cuda") == 0 ? "graph" : "compute"
               : l->stream == LAUNCH_REDUCE ? "reduce"
                                            : "gather",
               NULL, NULL);
}

static void print_rows(const struct cli *cli, const struct kernel_table *k, const Plan *plan)
{
    static const char *const names[] = {"where", "launch", "shape",  ">times", ">flops", ">bytes",
                                        ">each", ">all",   ">share", "bound",  "stream", NULL};
    static const char *const dropped[] = {"stream", "share", "bytes", NULL};
    struct table *t = table_new(names);
    table_drop_first(t, dropped);
    for (size_t i = 0; i < k->num_rows; i++) {
        put_row(t, &k->rows[i], k, plan);
    }
    table_print(t, cli);
    table_free(t);
}

/* ---- what they come to ---------------------------------------------------------------------- */

static void print_totals(const struct cli *cli, const struct kernel_table *k)
{
    static const char *const names[] = {"kind",    ">kernels", ">flops",   ">bytes",
                                        ">time",   ">share",   ">beside",  ">compute",
                                        ">memory", ">launch",  ">network", NULL};
    struct table *t = table_new(names);
    for (int i = 0; i < NUM_LAUNCH_KINDS; i++) {
        const struct kernel_total *x = &k->totals[i];
        char n[HUMAN_MAX], share[32];
        if (x->launches == 0 && x->seconds <= 0) {
            continue;
        }
        table_cell(t, launch_kind_names[i], NULL, NULL);
        snprintf(n, sizeof n, "%lld", (long long)x->launches);
        table_cell(t, x->launches > 0 ? n : "-", NULL, NULL);
        table_cell(t, x->flops > 0 ? human_metric(n, x->flops, "") : "-", NULL, NULL);
        table_cell(t, x->bytes > 0 ? human_bytes(n, x->bytes) : "-", NULL, NULL);
        table_cell(t, seconds_words(n, x->seconds), NULL, NULL);
        snprintf(share, sizeof share, "%.1f %%", 100 * x->seconds / k->step_s);
        table_cell(t, share, NULL, NULL);
        table_cell(t, x->beside > 0 ? seconds_words(n, x->beside) : "-", NULL, NULL);
        for (int b = 0; b < NUM_KERNEL_BOUNDS; b++) {
            table_cell(t, x->by_bound[b] > 0 ? seconds_words(n, x->by_bound[b]) : "-", NULL, NULL);
        }
    }
    table_print(t, cli);
    table_free(t);
}

static void print_assumptions(const struct cli *cli, const struct kernel_table *k)
{
    static const char *const names[] = {"assumed", "figure", "source", NULL};
    struct kernel_assumption list[KERNEL_ASSUMPTIONS_MAX];
    size_t num = kernel_rates_list(&k->rates, list);
    struct table *t = table_new(names);
    for (size_t i = 0; i < num; i++) {
        table_cell(t, list[i].what, NULL, NULL);
        table_cell(t, list[i].value, NULL, NULL);
        table_cell(t, list[i].source, NULL, NULL);
    }
    table_print(t, cli);
    table_free(t);
}

static void print_page(const struct cli *cli, const struct kernel_table *k, const Plan *plan)
{
    char a[HUMAN_MAX], b[HUMAN_MAX], c[HUMAN_MAX];
    long long ranks = (long long)plan->mesh->num_ranks;
    printf("A PREDICTION by arithmetic: nothing was run or measured for it.\n"
           "One optimizer step of rank 0 of %lld on %s, %s, backend %s: %lld micro-batch%s of "
           "%lld x %lld tokens.\n\n",
           ranks, k->rates.type, plan->spec->training->precision, plan->backend,
           (long long)plan->micro_batches, plan->micro_batches == 1 ? "" : "es",
           (long long)plan->spec->training->micro_batch_size,
           (long long)plan->spec->training->seq_len);
    print_rows(cli, k, plan);
    printf("\nTimes: a step's, layers x micro-batches; bytes of a collective: what a rank sends.\n"
           "By kind; time and share of the compute stream, beside: of other streams, by what "
           "bounds it:\n\n");
    print_totals(cli, k);
    printf("\npredicted  %s a step, %s tokens/s, MFU %.1f %% of %.4g TFLOP/s a rank\n",
           seconds_words(a, k->step_s), human_count(b, k->tokens_per_s), 100 * k->mfu,
           k->rates.peak / 1e12);
    if (k->rates.gpu) {
        printf("host       %lld launches, %lld of them graphs: %s, %s\n",
               (long long)k->num_launches, (long long)k->num_graphs, seconds_words(c, k->host_s),
               k->host_s > k->device_s ? "more than the device takes: it waits for its host"
                                       : "hidden behind the device");
    }
    printf("\nWhat this rests on:\n\n");
    print_assumptions(cli, k);
}

/* ---- json ----------------------------------------------------------------------------------- */

static json_t *row_json(const struct kernel_row *row)
{
    const struct launch *l = &row->launch;
    json_t *shape = json_array();
    for (int i = 0; i < LAUNCH_SIZES && l->size[i] > 0; i++) {
        json_array_append_new(shape, i == 0 && row->mixed
                                         ? json_real(row->numel / (double)row->times)
                                         : json_integer(l->size[i]));
    }
    double n = (double)row->times;
    return json_pack("{ss ss ss ss so sI sb sb sf sf sf sf ss si}", "where",
                     launch_place_names[l->place], "op", launch_op_names[l->op], "what", l->what,
                     "kind", launch_kind_names[launch_kind(l)], "shape", shape, "times",
                     (json_int_t)row->times, "graph", l->captured, "beside",
                     l->stream != LAUNCH_COMPUTE, "flops", row->flops / n, "bytes", row->bytes / n,
                     "seconds", row->seconds / n, "all_seconds", row->seconds, "bound",
                     kernel_bound_names[row->bound], "kernels", l->num_kernels);
}

static json_t *totals_json(const struct kernel_table *k)
{
    json_t *all = json_object();
    for (int i = 0; i < NUM_LAUNCH_KINDS; i++) {
        const struct kernel_total *x = &k->totals[i];
        json_t *bounds = json_object();
        for (int b = 0; b < NUM_KERNEL_BOUNDS; b++) {
            json_object_set_new(bounds, kernel_bound_names[b], json_real(x->by_bound[b]));
        }
        json_object_set_new(all, launch_kind_names[i],
                            json_pack("{sI sf sf sf sf so}", "kernels", (json_int_t)x->launches,
                                      "flops", x->flops, "bytes", x->bytes, "seconds", x->seconds,
                                      "beside_seconds", x->beside, "by_bound", bounds));
    }
    return all;
}

static json_t *assumptions_json(const struct kernel_table *k)
{
    struct kernel_assumption list[KERNEL_ASSUMPTIONS_MAX];
    size_t num = kernel_rates_list(&k->rates, list);
    json_t *all = json_array();
    for (size_t i = 0; i < num; i++) {
        json_array_append_new(all, json_pack("{ss ss ss}", "what", list[i].what, "figure",
                                             list[i].value, "source", list[i].source));
    }
    return all;
}

static void print_json(const struct kernel_table *k)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < k->num_rows; i++) {
        json_array_append_new(rows, row_json(&k->rows[i]));
    }
    json_t *all =
        json_pack("{sb ss sf sf sf sf sf sf sI so so so}", "is_prediction", 1, "device",
                  k->rates.type, "peak_flops", k->rates.peak, "step_seconds", k->step_s,
                  "device_seconds", k->device_s, "host_seconds", k->host_s, "tokens_per_second",
                  k->tokens_per_s, "mfu", k->mfu, "kernels", (json_int_t)k->num_launches,
                  "assumptions", assumptions_json(k), "totals", totals_json(k), "launches", rows);
    json_dumpf(all, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(all);
}

void plan_kernels_print(const struct cli *cli, const struct kernel_table *t, const Plan *plan)
{
    if (cli->format == FORMAT_JSON) {
        print_json(t);
    } else if (cli->format == FORMAT_CSV) {
        print_rows(cli, t, plan);
    } else {
        print_page(cli, t, plan);
    }
}
