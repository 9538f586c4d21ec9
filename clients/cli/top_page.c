#include <stdlib.h>
#include <string.h>

#include "clients/cli/human.h"
#include "clients/cli/job.h"
#include "clients/cli/top.h"

static void cell_int(struct table *t, int64_t value, bool known)
{
    char raw[32];
    snprintf(raw, sizeof raw, "%lld", (long long)value);
    table_cell(t, known ? raw : "-", NULL, NULL);
}

static void write_cluster(const struct top_view *v, struct buf *out)
{
    char h[HUMAN_MAX];
    const GetUsageReply *u = v->usage;
    buf_printf(out, "%s  %lld devices", human_time(h, v->now_us, v->now_us),
               (long long)u->num_devices);
    if (u->has_num_used) {
        buf_printf(out, ": %lld in use, %lld free", (long long)u->num_used, (long long)u->num_free);
    }
    if (u->num_drained > 0) {
        buf_printf(out, ", %lld drained", (long long)u->num_drained);
    }
    buf_printf(out, "; %zu running, %lld queued\n", v->all_running, (long long)u->num_queued);
}

static void end_section(struct table *t, const struct table_look *look, struct buf *out)
{
    if (table_rows(t) > 0) {
        buf_puts(out, "\n");
        table_write(t, out, look);
    }
    table_free(t);
}

/* Those that have or want something. */
static void write_tenants(const struct top_view *v, const struct table_look *look, struct buf *out)
{
    static const char *const names[] = {"~tenant",   ">in_use", ">quota", ">max",
                                        ">borrowed", ">queued", NULL};
    struct table *t = table_new(names);
    for (size_t i = 0; i < v->usage->n_usage; i++) {
        const Usage *u = v->usage->usage[i];
        const Quota *q = u->quota;
        if (!u->devices_in_use && !u->num_queued && v->usage->n_usage > 1) {
            continue;
        }
        table_cell(t, u->tenant, NULL, NULL);
        cell_int(t, u->devices_in_use, true);
        cell_int(t, q ? q->devices : -1, q && q->devices >= 0);
        cell_int(t, q ? q->max_devices : -1, q && q->max_devices >= 0);
        cell_int(t, u->devices_borrowed, true);
        cell_int(t, u->num_queued, true);
    }
    end_section(t, look, out);
}

static void add_running(struct table *t, const Job *j)
{
    char h[HUMAN_MAX], text[64];
    cell_int(t, j->id, true);
    table_cell(t, j->name, NULL, NULL);
    table_cell(t, j->tenant, NULL, NULL);
    table_cell(t, job_state_word(j->state), NULL, job_state_colour(j->state));
    snprintf(text, sizeof text, "%lld%s", (long long)j->devices, j->borrowed ? "b" : "");
    table_cell(t, text, NULL, j->borrowed ? "\033[33m" : NULL);
    snprintf(text, sizeof text, "%lld/%lld", (long long)j->step, (long long)j->total_steps);
    table_cell(t, text, NULL, NULL);
    table_cell(t, j->has_loss && j->step > 0 ? human_value(h, j->loss) : "-", NULL, NULL);
    table_cell(t, j->tokens_per_s > 0 ? human_count(h, j->tokens_per_s) : "-", NULL, NULL);
    snprintf(text, sizeof text, "%.1f%%", 100 * j->mfu);
    table_cell(t, j->mfu > 0 ? text : "-", NULL, NULL);
    table_cell(t, j->has_eta_s ? human_duration(h, j->eta_s) : "-", NULL, NULL);
}

static void write_running(const struct top_view *v, const struct table_look *look, struct buf *out)
{
    static const char *const names[] = {">id",      "~name", "~tenant", "state",
                                        ">devices", ">step", ">loss",   ">tokens_per_s",
                                        ">mfu",     ">left", NULL};
    static const char *const drop[] = {"tokens_per_s", "mfu", "loss", "tenant", "state", NULL};
    struct table *t = table_new(names);
    table_drop_first(t, drop);
    for (size_t i = 0; i < v->num_running; i++) {
        add_running(t, v->running[i]);
    }
    end_section(t, look, out);
    if (v->all_running > v->num_running) {
        buf_printf(out, "and %zu more\n", v->all_running - v->num_running);
    }
}

static void write_queue(const struct top_view *v, const struct table_look *look, struct buf *out)
{
    static const char *const names[] = {">place",    ">id",    "~name", "~tenant", ">devices",
                                        ">priority", ">waits", "~why",  NULL};
    static const char *const drop[] = {"priority", "tenant", NULL};
    char h[HUMAN_MAX];
    struct table *t = table_new(names);
    table_drop_first(t, drop);
    for (size_t i = 0; i < v->num_queued; i++) {
        const Job *j = v->queued[i];
        const WhyReply *w = v->why[i];
        cell_int(t, w ? w->place : 0, w && w->place > 0);
        cell_int(t, j->id, true);
        table_cell(t, j->name, NULL, NULL);
        table_cell(t, j->tenant, NULL, NULL);
        cell_int(t, j->devices, true);
        cell_int(t, j->priority, true);
        table_cell(t, human_duration(h, j->wait_s), NULL, NULL);
        table_cell(t, w && w->n_reasons ? w->reasons[0] : "", NULL, NULL);
    }
    end_section(t, look, out);
    if (v->usage->num_queued > (int64_t)v->num_queued && v->num_queued > 0) {
        buf_printf(out, "and %lld more\n",
                   (long long)(v->usage->num_queued - (int64_t)v->num_queued));
    }
}

/* A job and why it waits, to be sorted together. */
struct waiting {
    Job *job;
    const WhyReply *why;
    size_t nth; /* of the server's answer */
};

static int by_place(const void *a, const void *b)
{
    const struct waiting *x = a, *y = b;
    uint32_t px = x->why && x->why->place > 0 ? (uint32_t)x->why->place : UINT32_MAX;
    uint32_t py = y->why && y->why->place > 0 ? (uint32_t)y->why->place : UINT32_MAX;
    return px != py ? (px > py) - (px < py) : (x->nth > y->nth) - (x->nth < y->nth);
}

void top_sort_queue(Job **queued, const WhyReply **why, size_t num)
{
    struct waiting *list = calloc(num + 1, sizeof *list);
    ASSERT(list);
    for (size_t i = 0; i < num; i++) {
        list[i] = (struct waiting){queued[i], why[i], i};
    }
    qsort(list, num, sizeof *list, by_place);
    for (size_t i = 0; i < num; i++) {
        queued[i] = list[i].job;
        why[i] = list[i].why;
    }
    free(list);
}

void top_write(const struct top_view *v, const struct table_look *look, struct buf *out)
{
    write_cluster(v, out);
    write_tenants(v, look, out);
    write_running(v, look, out);
    write_queue(v, look, out);
}
