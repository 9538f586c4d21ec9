#include "clients/cli/node_rows.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/human.h"
#include "plan/cluster.h"

#define RED "\033[31m"
#define CYAN "\033[36m"
#define GREEN "\033[32m"
/* Words in one cell; then dots. */
#define LIST_MAX 6

void node_rows_count(const NodeInfo *n, struct node_counts *sum)
{
    for (size_t i = 0; i < n->n_devices; i++) {
        const DeviceInfo *d = n->devices[i];
        sum->devices++;
        sum->used += d->job_id != 0;
        sum->drained += d->drained;
        sum->claimed += !d->job_id && !d->drained && d->claimed_by;
        sum->free += !d->job_id && !d->drained && !d->claimed_by;
    }
}

/* ---- names that count on ---- */

/* "dgx[0-7]"; one name is a run, too. text is of the first, borrowed. */
struct name_run {
    const char *text;
    size_t prefix;       /* bytes before the number */
    int64_t first, last; /* -1 = no number */
};

static struct name_run run_of(const char *name)
{
    size_t len = strlen(name), at = len;
    while (at > 0 && isdigit((unsigned char)name[at - 1])) {
        at--;
    }
    /* 007 would be printed as 7. */
    bool number = at < len && len - at <= 9 && (name[at] != '0' || len - at == 1);
    int64_t value = number ? strtoll(name + at, NULL, 10) : -1;
    return (struct name_run){name, number ? at : len, value, value};
}

static bool same_prefix(const struct name_run *a, const struct name_run *b)
{
    return a->prefix == b->prefix && strncmp(a->text, b->text, a->prefix) == 0 &&
           (a->last < 0) == (b->last < 0);
}

/* Does b go on where a ends? again: ending with the same name will do. */
static bool goes_on(const struct name_run *a, const struct name_run *b, bool again)
{
    if (!same_prefix(a, b)) {
        return false;
    }
    return (again && b->first == a->last) || (a->last >= 0 && b->first == a->last + 1);
}

static void print_run(struct buf *out, const struct name_run *r)
{
    if (r->first == r->last) {
        buf_puts(out, r->text);
    } else {
        buf_printf(out, "%.*s[%" PRId64 "-%" PRId64 "]", (int)r->prefix, r->text, r->first,
                   r->last);
    }
}

/* ---- a row ---- */

/* Texts are owned. */
struct row {
    int64_t num_nodes;
    struct node_counts each; /* of one node */
    struct name_run name, domain, leaf;
    char *domains, *types, *use, *reasons;
};

/* Adds word to a list of different ones. */
static void add_word(struct buf *list, int *num, const char *word)
{
    size_t len = strlen(word);
    const char *at = list->data;
    while (at && (at = strstr(at, word)) != NULL) {
        bool begins = at == list->data || (at - list->data >= 2 && at[-1] == ' ' && at[-2] == ',');
        if (begins && (at[len] == 0 || at[len] == ',')) {
            return;
        }
        at += len;
    }
    if (++*num <= LIST_MAX) {
        buf_printf(list, "%s%s", list->len ? ", " : "", word);
    } else if (*num == LIST_MAX + 1) {
        buf_puts(list, ", ...");
    }
}

static char *list_types(const NodeInfo *n)
{
    struct buf list = {0};
    int num = 0;
    for (size_t i = 0; i < n->n_devices; i++) {
        add_word(&list, &num, n->devices[i]->type);
    }
    return buf_take(&list);
}

/* Domains that aren't just the node itself. */
static char *list_domains(const NodeInfo *n)
{
    struct buf list = {0};
    int num = 0;
    for (size_t i = 0; i < n->n_devices; i++) {
        const char *domain = cluster_domain(n, n->devices[i]);
        if (domain && strcmp(domain, n->name ? n->name : "") != 0) {
            add_word(&list, &num, domain);
        }
    }
    return buf_take(&list);
}

static void say_use(char *out, size_t size, const DeviceInfo *d)
{
    if (d->job_id < 0) { /* another tenant's, that isn't to be told */
        snprintf(out, size, "in use");
    } else if (d->job_id) {
        snprintf(out, size, "job %lld", (long long)d->job_id);
    } else if (d->drained) {
        snprintf(out, size, "drained");
    } else if (d->claimed_by < 0) {
        snprintf(out, size, "claimed");
    } else if (d->claimed_by) {
        snprintf(out, size, "claimed for job %lld", (long long)d->claimed_by);
    } else {
        snprintf(out, size, "free");
    }
}

static char *list_use(const NodeInfo *n)
{
    struct buf list = {0};
    int num = 0;
    for (size_t i = 0; i < n->n_devices; i++) {
        char use[64];
        say_use(use, sizeof use, n->devices[i]);
        if (strcmp(use, "free") != 0 && strcmp(use, "drained") != 0) {
            add_word(&list, &num, use);
        }
    }
    return buf_take(&list);
}

static const char *reason_of(const DeviceInfo *d)
{
    return d->reason && d->reason[0] ? d->reason : "no reason given";
}

/* "3: GPU is lost", "0-3: moved"; without indexes where all of the node is drained for one. */
static char *list_reasons(const NodeInfo *n)
{
    struct buf list = {0};
    int num = 0;
    for (size_t i = 0; i < n->n_devices;) {
        const DeviceInfo *d = n->devices[i];
        size_t end = i + 1;
        while (d->drained && end < n->n_devices && n->devices[end]->drained &&
               n->devices[end]->index == n->devices[end - 1]->index + 1 &&
               strcmp(reason_of(n->devices[end]), reason_of(d)) == 0) {
            end++;
        }
        if (!d->drained || ++num > LIST_MAX) {
            i = end;
            continue;
        }
        buf_puts(&list, list.len ? "; " : "");
        if (end - i < n->n_devices) {
            buf_printf(&list, end - i > 1 ? "%d-%d: " : "%d: ", d->index,
                       n->devices[end - 1]->index);
        }
        buf_puts(&list, reason_of(d));
        i = end;
    }
    if (num > LIST_MAX) {
        buf_puts(&list, "; ...");
    }
    return buf_take(&list);
}

static struct row row_of(const NodeInfo *n)
{
    struct row r = {.num_nodes = 1, .name = run_of(n->name ? n->name : "")};
    node_rows_count(n, &r.each);
    r.types = list_types(n);
    r.use = list_use(n);
    r.domains = list_domains(n);
    r.reasons = list_reasons(n);
    r.domain = run_of(r.domains);
    r.leaf = run_of(n->n_switches ? n->switches[0] : "");
    return r;
}

static void row_free(struct row *r)
{
    free(r->types);
    free(r->use);
    free(r->domains);
    free(r->reasons);
}

/* Takes next into r if they are one row; next is then freed. */
static bool join(struct row *r, struct row *next)
{
    if (memcmp(&r->each, &next->each, sizeof r->each) != 0 || strcmp(r->types, next->types) != 0 ||
        strcmp(r->use, next->use) != 0 || strcmp(r->reasons, next->reasons) != 0 ||
        !goes_on(&r->name, &next->name, false) || !goes_on(&r->domain, &next->domain, true) ||
        !goes_on(&r->leaf, &next->leaf, true)) {
        return false;
    }
    r->num_nodes++;
    r->name.last = next->name.last;
    r->domain.last = next->domain.last;
    r->leaf.last = next->leaf.last;
    row_free(next);
    return true;
}

static void add_run(struct table *t, const struct name_run *run)
{
    struct buf text = {0};
    print_run(&text, run);
    table_cell(t, text.data, NULL, NULL);
    buf_free(&text);
}

/* 0 is a dot, so that what there is stands out. */
static void add_count(struct table *t, const struct row *r, int64_t each, const char *colour)
{
    char human[64], raw[64];
    snprintf(raw, sizeof raw, "%" PRId64, each * r->num_nodes);
    snprintf(human, sizeof human, "%s", each ? raw : ".");
    table_cell(t, human, raw, each ? colour : NULL);
}

static void add_row(struct table *t, const struct row *r)
{
    char human[64], raw[64];
    add_run(t, &r->name);
    snprintf(raw, sizeof raw, "%" PRId64, r->each.devices * r->num_nodes);
    snprintf(human, sizeof human, "%" PRId64 " x %" PRId64, r->num_nodes, r->each.devices);
    table_cell(t, r->num_nodes > 1 ? human : raw, raw, NULL);
    table_cell(t, r->types, NULL, NULL);
    add_count(t, r, r->each.free, GREEN);
    add_count(t, r, r->each.used, CYAN);
    add_count(t, r, r->each.claimed, NULL);
    add_count(t, r, r->each.drained, RED);
    add_run(t, &r->domain);
    add_run(t, &r->leaf);
    table_cell(t, r->use, NULL, NULL);
    table_cell(t, r->reasons, NULL, NULL);
}

struct table *node_rows_new(const ClusterSpec *c)
{
    static const char *const names[] = {"node",  ">devices", "type",     ">free",
                                        ">used", ">claimed", ">drained", "domain",
                                        "leaf",  "~use",     "~reason",  NULL};
    static const char *const drop[] = {"leaf", "domain", "claimed", NULL};
    struct table *t = table_new(names);
    table_drop_first(t, drop);
    for (size_t i = 0; i < c->n_nodes;) {
        struct row r = row_of(c->nodes[i++]);
        while (i < c->n_nodes) {
            struct row next = row_of(c->nodes[i]);
            if (!join(&r, &next)) {
                row_free(&next);
                break;
            }
            i++;
        }
        add_row(t, &r);
        row_free(&r);
    }
    return t;
}

/* ---- devices ---- */

static void add_device(struct table *t, const NodeInfo *n, const DeviceInfo *d)
{
    char h[HUMAN_MAX], raw[128], use[64], peak[HUMAN_MAX] = "-";
    snprintf(raw, sizeof raw, "%.64s:%d", n->name ? n->name : "", d->index);
    table_cell(t, raw, NULL, NULL);
    table_cell(t, d->type, NULL, NULL);
    say_use(use, sizeof use - 16, d);
    if (d->drained && d->job_id) {
        snprintf(use + strlen(use), 16, ", drained");
    }
    table_cell(t, use, NULL, d->drained ? RED : d->job_id ? CYAN : d->claimed_by ? NULL : GREEN);
    snprintf(raw, sizeof raw, "%lld", (long long)d->mem_bytes);
    table_cell(t, d->mem_bytes ? human_bytes(h, (double)d->mem_bytes) : "-", raw, NULL);
    snprintf(raw, sizeof raw, "%.17g", d->peak_flops_fp32);
    if (d->peak_flops_fp32 > 0) {
        bool tera = d->peak_flops_fp32 >= 1e12;
        snprintf(peak, sizeof peak, "%.1f %cFLOP/s", d->peak_flops_fp32 / (tera ? 1e12 : 1e9),
                 tera ? 'T' : 'G');
    }
    table_cell(t, peak, raw, NULL);
    table_cell(t, cluster_domain(n, d), NULL, NULL);
    table_cell(t, n->n_switches ? n->switches[0] : NULL, NULL, NULL);
    table_cell(t, d->drained ? reason_of(d) : d->reason, NULL, NULL);
}

struct table *node_rows_devices(const NodeInfo *const *nodes, size_t num_nodes)
{
    static const char *const names[] = {"device", "type", "use",     ">memory", ">peak_fp32",
                                        "domain", "leaf", "~reason", NULL};
    static const char *const drop[] = {"leaf", "peak_fp32", NULL};
    struct table *t = table_new(names);
    table_drop_first(t, drop);
    for (size_t i = 0; i < num_nodes; i++) {
        for (size_t k = 0; k < nodes[i]->n_devices; k++) {
            add_device(t, nodes[i], nodes[i]->devices[k]);
        }
    }
    return t;
}
