#include "clients/cli/placement.h"

#include <stdio.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* A device that the job has, or a node's that it doesn't (rank -1). */
struct spot {
    const char *node; /* not ended: node_len of it */
    size_t node_len;
    int64_t index;
    int64_t rank;
    int64_t order; /* of its node in the cluster; then of the first rank on it */
    bool is_known; /* the cluster has it */
    const char *leaf, *domain;
};

struct spots {
    struct spot *all; /* owned */
    size_t num;
};

/* ---- what there is ---- */

static bool split_name(const char *name, struct spot *s)
{
    const char *colon = strrchr(name, ':');
    char *end = NULL;
    if (!colon) {
        return false;
    }
    s->node = name;
    s->node_len = (size_t)(colon - name);
    s->index = strtoll(colon + 1, &end, 10);
    return end != colon + 1 && !*end;
}

static bool same_node(const struct spot *a, const struct spot *b)
{
    return a->node_len == b->node_len && memcmp(a->node, b->node, a->node_len) == 0;
}

static int by_node_name(const void *a, const void *b)
{
    const struct spot *x = a, *y = b;
    size_t n = x->node_len < y->node_len ? x->node_len : y->node_len;
    int c = memcmp(x->node, y->node, n);
    return c                            ? c
           : x->node_len != y->node_len ? (x->node_len > y->node_len) - (x->node_len < y->node_len)
                                        : (x->index > y->index) - (x->index < y->index);
}

static int by_place(const void *a, const void *b)
{
    const struct spot *x = a, *y = b;
    return x->order != y->order ? (x->order > y->order) - (x->order < y->order)
                                : by_node_name(a, b);
}

/* The spot of that device among num that are sorted by name; NULL = the job doesn't have it. */
static struct spot *find(const struct spots *s, size_t num, const char *node, int64_t index)
{
    struct spot key = {.node = node, .node_len = strlen(node), .index = index};
    return num ? bsearch(&key, s->all, num, sizeof key, by_node_name) : NULL;
}

static bool has_node(const struct spots *s, size_t num, const char *node)
{
    size_t lo = 0, hi = num, len = strlen(node);
    const struct spot key = {.node = node, .node_len = len, .index = INT64_MIN};
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (by_node_name(&s->all[mid], &key) < 0) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < num && same_node(&s->all[lo], &key);
}

static void add_spot(struct spots *s, const struct spot *add)
{
    s->all = realloc(s->all, (s->num + 1) * sizeof *s->all);
    ASSERT(s->all);
    s->all[s->num++] = *add;
}

/* Nodes that no cluster tells of come behind the others, in the order of their first ranks. */
static void order_by_rank(struct spots *s, int64_t behind)
{
    for (size_t i = 0, end; i < s->num; i = end) {
        int64_t lowest = s->all[i].rank;
        for (end = i + 1; end < s->num && same_node(&s->all[i], &s->all[end]); end++) {
            lowest = s->all[end].rank < lowest ? s->all[end].rank : lowest;
        }
        for (size_t k = i; k < end; k++) {
            s->all[k].order = behind + lowest;
        }
    }
}

/* What the cluster knows of nodes that the job is on, and their other devices. */
static void add_cluster(struct spots *s, const ClusterSpec *c)
{
    size_t num = s->num;
    for (size_t i = 0; i < c->n_nodes; i++) {
        const NodeInfo *n = c->nodes[i];
        if (!n->name || !has_node(s, num, n->name)) {
            continue;
        }
        for (size_t k = 0; k < n->n_devices; k++) {
            const DeviceInfo *d = n->devices[k];
            struct spot *have = find(s, num, n->name, d->index), other = {.rank = -1};
            struct spot *at = have ? have : &other;
            at->node = n->name;
            at->node_len = strlen(n->name);
            at->index = d->index;
            at->order = (int64_t)i;
            at->is_known = true;
            at->leaf = n->n_switches ? n->switches[0] : NULL;
            at->domain = d->domain && *d->domain ? d->domain : NULL;
            if (!have) {
                add_spot(s, &other);
            }
        }
    }
}

/* ---- nodes ---- */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Spots first .. end - 1 are of one node and one domain. */
static size_t node_end(const struct spots *s, size_t first)
{
    size_t end = first + 1;
    while (end < s->num && same_node(&s->all[first], &s->all[end]) &&
           same_text(s->all[first].domain, s->all[end].domain)) {
        end++;
    }
    return end;
}

static bool same_group(const struct spot *a, const struct spot *b)
{
    return same_text(a->leaf, b->leaf) && same_text(a->domain, b->domain);
}

/* Do ranks of first .. end - 1 count up by one, on all devices of the node? */
static bool is_full(const struct spots *s, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        if (s->all[i].rank != s->all[first].rank + (int64_t)(i - first) || s->all[i].rank < 0) {
            return false;
        }
    }
    return true;
}

/* "0-7", "0 1", "0-56 by 8" for ranks that go by steps; unused devices are dots. */
static void write_cells(const struct spots *s, size_t first, size_t end, struct buf *out)
{
    for (size_t i = first; i < end;) {
        const struct spot *a = &s->all[i];
        size_t run = i + 1;
        int64_t step = run < end && a->rank >= 0 ? s->all[run].rank - a->rank : 0;
        while (run < end && (a->rank < 0 ? s->all[run].rank < 0
                                         : s->all[run].rank >= 0 && step > 0 &&
                                               s->all[run].rank == s->all[run - 1].rank + step)) {
            run++;
        }
        size_t num = run - i;
        buf_puts(out, i > first ? " " : "");
        if (a->rank < 0 && num > 4) {
            buf_printf(out, ".x%zu", num);
        } else if (a->rank < 0) {
            for (size_t k = 0; k < num; k++) {
                buf_puts(out, k ? " ." : ".");
            }
        } else if (num > 2) {
            buf_printf(out, "%lld-%lld", (long long)a->rank, (long long)s->all[run - 1].rank);
            if (step > 1) {
                buf_printf(out, "/%lld", (long long)step);
            }
        } else {
            run = i + 1;
            buf_printf(out, "%lld", (long long)a->rank);
        }
        i = run;
    }
}

/* One node, or as many as go on alike: all of their devices, ranks counting on. Returns where the
 * next begins. */
static size_t write_nodes(const struct spots *s, size_t first, struct buf *out)
{
    size_t end = node_end(s, first), last = first, size = end - first, num = 1;
    bool goes_on = is_full(s, first, end);
    while (goes_on && end < s->num && same_group(&s->all[first], &s->all[end]) &&
           s->all[end].is_known && s->all[end].order == s->all[end - 1].order + 1) {
        size_t next = node_end(s, end);
        if (next - end != size || !is_full(s, end, next) ||
            s->all[end].rank != s->all[end - 1].rank + 1) {
            break;
        }
        last = end;
        end = next;
        num++;
    }
    const struct spot *a = &s->all[first], *z = &s->all[last];
    buf_printf(out, "%.*s", (int)a->node_len, a->node);
    if (num > 1) {
        buf_printf(out, "%s%.*s", num > 2 ? ".." : ",", (int)z->node_len, z->node);
    }
    buf_puts(out, " [");
    if (num > 1) {
        buf_printf(out, "%lld-%lld", (long long)a->rank, (long long)s->all[end - 1].rank);
    } else {
        write_cells(s, first, end, out);
    }
    buf_puts(out, "]");
    return end;
}

/* ---- lines ---- */

static size_t text_width(const char *text)
{
    return text ? strlen(text) : 0;
}

struct columns {
    size_t leaf, domain;
};

static struct columns measure(const struct spots *s)
{
    struct columns c = {0};
    for (size_t i = 0; i < s->num; i++) {
        size_t leaf = text_width(s->all[i].leaf), domain = text_width(s->all[i].domain);
        c.leaf = leaf > c.leaf ? leaf : c.leaf;
        c.domain = domain > c.domain ? domain : c.domain;
    }
    return c;
}

static void begin_line(struct buf *out, const char *indent, const struct columns *c,
                       const char *leaf, const char *domain)
{
    buf_puts(out, indent);
    if (c->leaf) {
        buf_printf(out, "%-*s  ", (int)c->leaf, leaf ? leaf : "");
    }
    if (c->domain) {
        buf_printf(out, "%s %-*s  ", domain ? "domain" : "      ", (int)c->domain,
                   domain ? domain : "");
    }
}

static void draw(const struct spots *s, const char *indent, size_t width, struct buf *out)
{
    const struct columns c = measure(s);
    for (size_t i = 0; i < s->num;) {
        const struct spot *group = &s->all[i];
        bool new_leaf = i == 0 || !same_text(s->all[i - 1].leaf, group->leaf);
        size_t line = out->len;
        begin_line(out, indent, &c, new_leaf ? group->leaf : NULL, group->domain);
        for (bool first = true; i < s->num && same_group(group, &s->all[i]); first = false) {
            struct buf node = {0};
            i = write_nodes(s, i, &node);
            if (!first && out->len - line + 2 + node.len > width) {
                buf_puts(out, "\n");
                line = out->len;
                begin_line(out, indent, &c, NULL, NULL);
            } else if (!first) {
                buf_puts(out, "  ");
            }
            buf_puts(out, node.data);
            buf_free(&node);
        }
        buf_puts(out, "\n");
    }
}

void placement_draw(struct buf *out, const ClusterSpec *cluster, const char *const *names,
                    size_t num, const char *indent, size_t width)
{
    struct spots s = {.all = calloc(num + 1, sizeof *s.all)};
    ASSERT(s.all);
    for (size_t r = 0; r < num; r++) {
        struct spot spot = {.rank = (int64_t)r};
        if (split_name(names[r], &spot)) {
            s.all[s.num++] = spot;
        }
    }
    if (s.num > 0) {
        qsort(s.all, s.num, sizeof *s.all, by_node_name);
        order_by_rank(&s, cluster ? (int64_t)cluster->n_nodes : 0);
        if (cluster) {
            add_cluster(&s, cluster);
        }
        qsort(s.all, s.num, sizeof *s.all, by_place);
    }
    draw(&s, indent, width, out);
    free(s.all);
}
