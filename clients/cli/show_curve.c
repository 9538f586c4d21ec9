#include <math.h>
#include <stdlib.h>

#include "base/buf.h"
#include "clients/cli/curve.h"
#include "clients/cli/human.h"
#include "clients/cli/plot.h"
#include "clients/cli/show.h"

enum { SPARK_WIDTH = 32, CURVE_POINTS = 2000 };
enum { SERIES_LOSS, SERIES_SPEED, SERIES_MFU };

/* The curves that the page draws on; none = the page stands without them. */
static void fetch_curve(struct cli *cli, const Job *j, struct curve *c)
{
    char id[32], words[] = "loss,tokens_per_s,mfu";
    GetMetricsRequest q = GET_METRICS_REQUEST__INIT;
    struct error err;
    ProtobufCMessage *reply;
    ASSERT(curve_choose(c, words, &err) == 0);
    snprintf(id, sizeof id, "%lld", (long long)j->id);
    q.job = id;
    q.series = (char **)(uintptr_t)c->series;
    q.n_series = c->num_series;
    q.has_points = 1;
    q.points = CURVE_POINTS;
    if (cli_call(cli, "Runs/GetMetrics", &q.base, &metrics__descriptor, &reply, &err) == 0) {
        curve_add(c, (const Metrics *)reply);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
}

/* Where the loss came from, as a number and as a picture. */
static void print_loss(const struct cli *cli, const Job *j, const struct curve *c)
{
    char h[HUMAN_MAX];
    struct buf picture = {0};
    show_label(cli, "loss");
    printf("%s", human_value(h, j->loss));
    if (c->num_rows > 1) {
        printf(", was %s at step %lld", human_value(h, curve_value(c, 0, SERIES_LOSS)),
               (long long)c->steps[0]);
    }
    if (cli->utf8 && c->num_rows > 1) {
        double *loss = calloc(c->num_rows, sizeof *loss);
        ASSERT(loss);
        for (size_t i = 0; i < c->num_rows; i++) {
            loss[i] = curve_value(c, i, SERIES_LOSS);
        }
        plot_spark(&picture, loss, c->num_rows, SPARK_WIDTH);
        printf("  %s%s%s", cli->colour ? "\033[36m" : "", picture.data ? picture.data : "",
               cli->colour ? "\033[0m" : "");
        free(loss);
    }
    printf("\n");
    buf_free(&picture);
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* NaN: no step has one. */
static double median(const struct curve *c, size_t series)
{
    double *v = calloc(c->num_rows + 1, sizeof *v);
    size_t n = 0;
    ASSERT(v);
    for (size_t i = 0; i < c->num_rows; i++) {
        double x = curve_value(c, i, series);
        if (!isnan(x)) {
            v[n++] = x;
        }
    }
    qsort(v, n, sizeof *v, rising);
    double m = n ? v[n / 2] : NAN;
    free(v);
    return m;
}

/* As of late while it runs; then of a step like most. */
static void print_speed(const struct cli *cli, const Job *j, const struct curve *c)
{
    char h[HUMAN_MAX];
    bool runs = j->state == JOB_RUNNING || c->num_rows == 0;
    double speed = runs ? j->tokens_per_s : median(c, SERIES_SPEED);
    double mfu = runs ? j->mfu : median(c, SERIES_MFU);
    if (speed > 0) {
        show_label(cli, "speed");
        printf("%s tokens/s", human_count(h, speed));
        if (mfu > 0) {
            printf(", MFU %.1f%%", 100 * mfu);
        }
        printf("%s\n", runs ? "" : " (median step)");
    }
}

void show_curve(struct cli *cli, const Job *j)
{
    struct curve c = {0};
    if (j->step > 0) {
        fetch_curve(cli, j, &c);
    }
    if (j->has_loss && j->step > 0) {
        print_loss(cli, j, &c);
    }
    print_speed(cli, j, &c);
    curve_free(&c);
}
