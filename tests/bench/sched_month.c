/* sched_month [DAYS [JOBS_A_DAY [LOAD [NODES]]]], 30, 1000, 0.9 and 256: a month of jobs on a
 * DGX-like cluster, under plain FIFO, plain EASY backfill, and server/sched. The same jobs at the
 * same times; each start takes a minute, each eviction half a minute and the minute of the next
 * start. Waits are all the time that a job stood in the queue. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/bench/month.h"

/* What is switched on of server/sched. */
struct column {
    const char *name;
    month_policy *policy;
    bool flat; /* all jobs are of one priority, and grow no older */
    bool quotas, preemption;
    int32_t fair_share, min_run_s;
};

static const struct column columns[] = {
    {"FIFO", month_fifo, true, false, false, 0, 0},
    {"plain backfill", month_easy, true, false, false, 0, 0},
    {"ours, one priority", month_ours, true, false, false, 0, 0},
    {"+ priorities, aging", month_ours, false, false, false, 0, 0},
    {"+ fair share", month_ours, false, false, false, 100, 0},
    {"+ preemption", month_ours, false, false, true, 100, 600},
    {"+ quotas", month_ours, false, true, true, 100, 600},
    {"min_run_s 3600", month_ours, false, true, true, 100, 3600},
};

enum { COLUMNS = sizeof columns / sizeof *columns, ROWS = 32, CLASSES = 4 };
static const char *const class_names[CLASSES] = {"1-8", "16-64", "128-256", "512-1024"};

struct table {
    int num_rows;
    char head[ROWS][48], cell[ROWS][COLUMNS][32];
    double mean[COLUMNS]; /* hours, of all jobs */
};

static int class_of(int32_t devices)
{
    return devices <= 8 ? 0 : devices <= 64 ? 1 : devices <= 256 ? 2 : 3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void put(struct table *t, int column, const char *head, const char *text)
{
    snprintf(t->head[t->num_rows], sizeof t->head[0], "%s", head);
    snprintf(t->cell[t->num_rows++][column], sizeof t->cell[0][0], "%s", text);
}

static void put_number(struct table *t, int column, const char *head, double value, int digits)
{
    char text[32];
    snprintf(text, sizeof text, "%.*f", digits, value);
    put(t, column, head, text);
}

/* Hours waited by the jobs that match: mean and 95 %. Those below 0 match all. */
static void waits(struct table *t, int column, const char *head, const struct month *m,
                  int size_class, int priority, int tenant)
{
    double *hours = calloc((size_t)m->num_jobs + 1, sizeof *hours), sum = 0;
    size_t num = 0;
    for (int32_t i = 0; i < m->num_jobs; i++) {
        const struct month_job *j = &m->jobs[i];
        if ((size_class < 0 || class_of(j->num_devices) == size_class) &&
            (priority < 0 || j->priority == priority) && (tenant < 0 || j->tenant == tenant)) {
            sum += hours[num++] = (double)j->waited_ms / 3600000;
        }
    }
    qsort(hours, num, sizeof *hours, by_value);
    if (size_class < 0 && priority < 0 && tenant < 0) {
        t->mean[column] = num ? sum / (double)num : 0;
    }
    char text[32];
    snprintf(text, sizeof text, "%.2f / %.1f", num ? sum / (double)num : 0,
             num ? hours[num * 95 / 100] : 0);
    put(t, column, head, text);
    free(hours);
}

static void report(struct table *t, int column, const struct month *m, double seconds)
{
    char head[48];
    t->num_rows = 0;
    waits(t, column, "wait, all", m, -1, -1, -1);
    put_number(t, column, "... of FIFO's", t->mean[column] / t->mean[0], 2);
    if (column > 0) {
        put_number(t, column, "... of plain backfill's", t->mean[column] / t->mean[1], 2);
    } else {
        put(t, column, "... of plain backfill's", "");
    }
    for (int c = 0; c < CLASSES; c++) {
        snprintf(head, sizeof head, "wait, %s devices", class_names[c]);
        waits(t, column, head, m, c, -1, -1);
    }
    for (int p = 700; p >= 300; p -= 200) {
        snprintf(head, sizeof head, "wait, priority %d", p);
        waits(t, column, head, m, -1, p, -1);
    }
    for (int k = 0; k < MONTH_TENANTS; k++) {
        snprintf(head, sizeof head, "wait, tenant %s", m->tenants[k].name);
        waits(t, column, head, m, -1, -1, k);
    }
    double last_s = (double)m->jobs[m->num_jobs - 1].submit_ms / 1000;
    put_number(t, column, "devices in use, %", 100 * m->busy_s / m->fabric->num_devices / last_s,
               1);
    put_number(t, column, "all done after, hours", (double)m->now_ms / 3600000, 0);
    put_number(t, column, "owed, device-hours", (m->owed_s[0] + m->owed_s[1] + m->owed_s[2]) / 3600,
               0);
    put_number(t, column, "evictions", (double)m->num_evictions, 0);
    put_number(t, column, "lost to evictions, device-hours", m->lost_s / 3600, 0);
    put_number(t, column, "processor seconds", seconds, 1);
    put_number(t, column, "passes", (double)m->num_passes, 0);
    put_number(t, column, "a pass, ms", 1000 * seconds / (double)m->num_passes, 3);
}

static void print(const struct table *t)
{
    printf("| |");
    for (int c = 0; c < COLUMNS; c++) {
        printf(" %s |", columns[c].name);
    }
    printf("\n|");
    for (int c = 0; c <= COLUMNS; c++) {
        printf(" --- |");
    }
    for (int r = 0; r < t->num_rows; r++) {
        printf("\n| %s |", t->head[r]);
        for (int c = 0; c < COLUMNS; c++) {
            printf(" %s |", t->cell[r][c]);
        }
    }
    printf("\n");
}

static void set_up(struct month *m, const struct column *c)
{
    month_rewind(m);
    for (int t = 0; t < MONTH_TENANTS; t++) {
        m->tenants[t].quota = c->quotas ? m->due[t] : -1;
    }
    m->flat = c->flat;
    /* The rest as configured by default (SchedulerConfig). */
    m->options = (struct sched_options){.preemption = c->preemption,
                                        .backfill = true,
                                        .max_evictions = 5,
                                        .min_run_ms = 1000 * (int64_t)c->min_run_s,
                                        .grace_ms = 300000,
                                        .aging_per_h = c->flat ? 0 : 5,
                                        .aging_max = c->flat ? 0 : 200,
                                        .fair_share = c->fair_share};
}

int main(int argc, char **argv)
{
    int64_t days = argc > 1 ? atoll(argv[1]) : 30, jobs_a_day = argc > 2 ? atoll(argv[2]) : 1000;
    double load = argc > 3 ? atof(argv[3]) : .9;
    int32_t nodes = argc > 4 ? atoi(argv[4]) : 256;
    if (days < 1 || days > 400 || jobs_a_day < 1 || jobs_a_day > 100000 || !(load > 0) ||
        nodes < 1 || nodes > 8192) {
        fprintf(stderr, "sched_month [DAYS [JOBS_A_DAY [LOAD [NODES]]]]\n");
        return 2;
    }
    struct month *m = month_new(nodes, days, jobs_a_day, load);
    static struct table t;
    printf("%d jobs of %lld days on %d devices, %.0f %% of its time asked for; tenants' quotas: "
           "%lld, %lld, %lld. Waits in hours, mean / 95 %%.\n",
           m->num_jobs, (long long)days, m->fabric->num_devices, 100 * load, (long long)m->due[0],
           (long long)m->due[1], (long long)m->due[2]);
    for (int c = 0; c < COLUMNS; c++) {
        set_up(m, &columns[c]);
        clock_t begin = clock();
        month_run(m, columns[c].policy);
        report(&t, c, m, (double)(clock() - begin) / CLOCKS_PER_SEC);
    }
    print(&t);
    month_free(m);
    return 0;
}
