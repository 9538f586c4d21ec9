#include "runtime/rank/replay.h"

#include <stdlib.h>

#include "base/log.h"

/* A step has some hundreds of kinds of work: units times slots. What is beyond is never captured.
 */
#define NUM_SLOTS 4096
#define MAX_ENTRIES (NUM_SLOTS / 2)

enum way { WAY_UNKNOWN, WAY_SEEN, WAY_GRAPH, WAY_DIRECT };

struct entry {
    struct replay_key key;
    enum way way;
    struct graph *graph; /* owned; WAY_GRAPH */
};

struct replay {
    struct device *dev;
    struct stream *compute;
    struct replay_counts counts;
    int num_entries;
    struct entry slots[NUM_SLOTS];
};

int replay_new(struct replay **out, struct device *dev, struct stream *compute, struct error *err)
{
    struct replay *r = calloc(1, sizeof(*r));
    if (r == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for captured work");
    r->dev = dev;
    r->compute = compute;
    *out = r;
    return 0;
}

void replay_free(struct replay *r)
{
    if (r == NULL)
        return;
    log_info("passes: %d captured, launched %lld times; %lld launched piece by piece",
             (int)r->counts.captured, (long long)r->counts.launched, (long long)r->counts.direct);
    for (int i = 0; i < NUM_SLOTS; i++)
        r->dev->ops->graph_free(r->dev, r->slots[i].graph);
    free(r);
}

struct replay_counts replay_counted(const struct replay *r)
{
    return r != NULL ? r->counts : (struct replay_counts){0};
}

/* ---- the table ------------------------------------------------------------------------------ */

static bool is_same(const struct replay_key *a, const struct replay_key *b)
{
    return a->kind == b->kind && a->unit_begin == b->unit_begin && a->unit_end == b->unit_end &&
           a->places == b->places;
}

/* NULL: no room for another. */
static struct entry *find(struct replay *r, const struct replay_key *key)
{
    uint64_t hash = key->places;
    hash = (hash ^ (uint64_t)(uint32_t)key->kind) * 1099511628211u;
    hash = (hash ^ (uint64_t)(uint32_t)key->unit_begin) * 1099511628211u;
    hash = (hash ^ (uint64_t)(uint32_t)key->unit_end) * 1099511628211u;
    size_t i = (hash >> 20) % NUM_SLOTS;
    while (r->slots[i].way != WAY_UNKNOWN && !is_same(&r->slots[i].key, key))
        i = (i + 1) % NUM_SLOTS;
    struct entry *e = &r->slots[i];
    if (e->way == WAY_UNKNOWN) {
        if (r->num_entries == MAX_ENTRIES)
            return NULL;
        r->num_entries++;
        e->key = *key;
    }
    return e;
}

/* ---- the ways ------------------------------------------------------------------------------- */

/* Leaves a graph in e, or WAY_DIRECT. Nothing has run. */
static int capture(struct replay *r, struct entry *e, replay_fn work, void *arg, struct error *err)
{
    const struct device_ops *ops = r->dev->ops;
    struct error refused = {0};
    char why[ERROR_TEXT_MAX] = "";
    if (ops->capture_begin(r->dev, r->compute, err) != 0)
        return -1;
    int rc = work(arg, &refused);
    if (ops->capture_end(r->dev, r->compute, &e->graph, why, sizeof(why), err) != 0)
        return -1;
    if (rc != 0 && e->graph != NULL) {
        ops->graph_free(r->dev, e->graph);
        e->graph = NULL;
    }
    e->way = e->graph != NULL ? WAY_GRAPH : WAY_DIRECT;
    if (e->graph != NULL) {
        r->counts.captured++;
        return 0;
    }
    if (r->counts.refused++ == 0)
        log_warn("work is launched piece by piece where it can't be captured: %s",
                 rc != 0 ? refused.text : why);
    return 0;
}

int replay_run(struct replay *r, const struct replay_key *key, replay_fn work, void *arg,
               struct error *err)
{
    struct entry *e = r != NULL ? find(r, key) : NULL;
    if (e != NULL && e->way == WAY_SEEN && capture(r, e, work, arg, err) != 0)
        return -1;
    if (e != NULL && e->way == WAY_GRAPH) {
        r->counts.launched++;
        return r->dev->ops->graph_launch(r->dev, r->compute, e->graph, err);
    }
    if (e != NULL && e->way == WAY_UNKNOWN)
        e->way = WAY_SEEN;
    if (r != NULL)
        r->counts.direct++;
    return work(arg, err);
}
