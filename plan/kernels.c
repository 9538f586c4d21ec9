#include "plan/kernels.h"

#include <stdlib.h>
#include <string.h>

#include "plan/launches_parts.h"

struct playing {
    struct kernel_table *table; /* NULL: its times alone are asked for */
    const struct kernel_rates *rates;
    const Plan *plan;
    size_t room, next;             /* of rows; where the last one was found, and one */
    bool counts;                   /* the second time */
    double began;                  /* where that began on the compute stream */
    double at[NUM_LAUNCH_STREAMS]; /* when each stream is done with what it has */
    double *marks;                 /* by number */
    double host_s, waited_s;
};

/* ---- rows ----------------------------------------------------------------------------------- */

static bool is_of_buckets(const struct launch *l)
{
    return l->place == LAUNCH_WEIGHTS || l->place == LAUNCH_GRADS;
}

static bool are_alike(const struct launch *a, const struct launch *b)
{
    return a->op == b->op && a->place == b->place && a->stream == b->stream &&
           a->captured == b->captured && a->adds == b->adds && strcmp(a->what, b->what) == 0 &&
           (is_of_buckets(a) ? a->size[1] == b->size[1]
                             : memcmp(a->size, b->size, sizeof a->size) == 0);
}

/* Launches come in turns, so the row is mostly the one behind the last one. */
static struct kernel_row *find_row(struct playing *p, const struct launch *l)
{
    struct kernel_table *t = p->table;
    for (size_t i = 0; i < t->num_rows; i++) {
        size_t at = (p->next + i) % t->num_rows;
        if (are_alike(&t->rows[at].launch, l)) {
            p->next = at + 1;
            return &t->rows[at];
        }
    }
    if (t->num_rows == p->room) {
        p->room = p->room ? 2 * p->room : 64;
        t->rows = realloc(t->rows, p->room * sizeof *t->rows);
        ASSERT(t->rows);
    }
    t->rows[t->num_rows] = (struct kernel_row){.launch = *l};
    p->next = t->num_rows + 1;
    return &t->rows[t->num_rows++];
}

static void count(struct playing *p, const struct launch *l, double seconds,
                  enum kernel_bound bound)
{
    struct kernel_row *row = find_row(p, l);
    struct kernel_total *total = &p->table->totals[launch_kind(l)];
    row->mixed = row->mixed || row->launch.size[0] != l->size[0];
    row->times++;
    row->numel += (double)l->size[0];
    row->flops += l->flops;
    row->bytes += l->bytes;
    row->seconds += seconds;
    row->bound = bound;
    total->launches += l->num_kernels;
    total->flops += l->flops;
    total->bytes += l->bytes;
    *(l->stream == LAUNCH_COMPUTE ? &total->seconds : &total->beside) += seconds;
    total->by_bound[bound] += seconds;
    p->table->num_launches += l->num_kernels;
    p->table->num_graphs += l->graph;
}

/* ---- streams -------------------------------------------------------------------------------- */

static void play(void *arg, const struct launch *l)
{
    struct playing *p = arg;
    double *at = &p->at[l->stream];
    enum kernel_bound bound;
    if (l->op == LAUNCH_RECORD) {
        p->marks[l->size[0]] = *at;
        return;
    }
    if (l->op == LAUNCH_WAIT) {
        double until = p->marks[l->size[0]];
        p->waited_s += l->stream == LAUNCH_COMPUTE && until > *at ? until - *at : 0;
        *at = until > *at ? until : *at;
        return;
    }
    const struct kernel_rates *r = p->rates;
    double seconds = kernel_time(r, p->plan, l, &bound);
    *at += seconds;
    p->host_s += l->graph ? r->graph_s : 0;
    p->host_s += l->captured ? 0 : l->num_kernels * r->call_s;
    if (p->counts && p->table) {
        count(p, l, seconds, bound);
    }
}

/* The host is a step ahead, so it is waited for only where it is slower than the device. */
static void finish(struct kernel_table *t, const struct playing *p)
{
    const TrainingSpec *spec = p->plan->spec->training;
    double tokens = (double)spec->global_batch_size * (double)spec->seq_len;
    t->device_s = p->at[LAUNCH_COMPUTE] - p->began;
    t->host_s = p->host_s;
    t->step_s = t->host_s > t->device_s ? t->host_s : t->device_s;
    t->totals[LAUNCH_KIND_IDLE].seconds = p->waited_s + t->step_s - t->device_s;
    t->totals[LAUNCH_KIND_IDLE].by_bound[KERNEL_BOUND_NETWORK] = p->waited_s;
    t->totals[LAUNCH_KIND_IDLE].by_bound[KERNEL_BOUND_LAUNCH] = t->step_s - t->device_s;
    t->flops = t->totals[LAUNCH_KIND_GEMM].flops + t->totals[LAUNCH_KIND_ATTENTION].flops;
    t->tokens_per_s = tokens / t->step_s;
    t->mfu = tokens * p->plan->flops_per_token / t->step_s / t->rates.peak /
             (double)p->plan->mesh->num_ranks;
}

static int play_two_steps(struct playing *p, struct error *err)
{
    size_t num_buckets = p->plan->n_stages > 0 ? p->plan->stages[0]->n_buckets : 0;
    p->marks = calloc(LAUNCH_MARK_GATHERED + num_buckets, sizeof *p->marks);
    ASSERT(p->marks);
    int rc = launches_each(p->plan, play, p, err);
    p->began = p->at[LAUNCH_COMPUTE];
    p->counts = true;
    p->host_s = p->waited_s = 0;
    rc = rc == 0 ? launches_each(p->plan, play, p, err) : rc;
    free(p->marks);
    return rc;
}

int kernel_table_new(struct kernel_table **out, const Plan *plan, const ClusterSpec *cluster,
                     enum kernel_attention attention, struct error *err)
{
    struct kernel_rates rates;
    if (kernel_rates_find(&rates, plan, cluster, attention, err) != 0) {
        return -1;
    }
    struct kernel_table *t = calloc(1, sizeof *t);
    ASSERT(t);
    t->rates = rates;
    struct playing p = {.table = t, .rates = &t->rates, .plan = plan};
    if (play_two_steps(&p, err) != 0) {
        kernel_table_free(t);
        return -1;
    }
    finish(t, &p);
    *out = t;
    return 0;
}

int kernel_seconds(const Plan *plan, const struct kernel_rates *rates, double *device_s,
                   double *host_s, struct error *err)
{
    struct playing p = {.rates = rates, .plan = plan};
    if (play_two_steps(&p, err) != 0) {
        return -1;
    }
    *device_s = p.at[LAUNCH_COMPUTE] - p.began;
    *host_s = p.host_s;
    return 0;
}

void kernel_table_free(struct kernel_table *t)
{
    if (t) {
        free(t->rows);
        free(t);
    }
}
