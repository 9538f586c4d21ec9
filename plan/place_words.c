/* Why a gang has no place, in words, and what would have one. */
#include <stdio.h>
#include <string.h>

#include "plan/layout_rules.h"
#include "plan/place.h"
#include "plan/place_layout.h"
#include "plan/schedule.h"

/* " of type h100", or nothing. */
static const char *of_type(const struct place_lack *lack, char *out, size_t size)
{
    out[0] = 0;
    if (lack->type && strcmp(lack->type, "any") != 0) {
        snprintf(out, size, " of type %.60s", lack->type);
    }
    return out;
}

/* "1 x 8 in a fast domain" */
static void groups_words(const struct place_lack *lack, char *out, size_t size)
{
    snprintf(out, size, "%d x %d in %s", lack->num_groups, lack->group,
             lack->num_groups == 1 ? "a fast domain" : "fast domains");
}

void place_lack_words(const struct place_lack *lack, enum place_result result, char *out,
                      size_t size)
{
    char type[80], groups[80];
    of_type(lack, type, sizeof type);
    groups_words(lack, groups, sizeof groups);
    if (result == PLACE_OK) {
        snprintf(out, size, "it has a place");
    } else if (result == PLACE_FEW) {
        snprintf(out, size, "needs %d device%s%s, %d of %d %s free", lack->need,
                 lack->need == 1 ? "" : "s", type, lack->free, lack->total,
                 lack->free == 1 ? "is" : "are");
    } else if (result == PLACE_NEVER && lack->total < lack->need) {
        snprintf(out, size, "needs %d device%s%s, the cluster has %d", lack->need,
                 lack->need == 1 ? "" : "s", type, lack->total);
    } else if (result == PLACE_NEVER && lack->one_node && lack->node_total < lack->need) {
        snprintf(out, size, "needs %d devices%s on one node, no node has more than %d", lack->need,
                 type, lack->node_total);
    } else if (result == PLACE_NEVER) {
        snprintf(out, size, "needs %s%s%s, %s has room for %d", groups,
                 lack->one_node ? " of one node" : "", type,
                 lack->one_node ? "a node" : "the cluster", lack->total_groups);
    } else if (lack->one_node && lack->largest < lack->need) {
        snprintf(out, size, "fragmented: needs %d devices%s on one node, has at most %d on one",
                 lack->need, type, lack->largest);
    } else if (lack->one_node) {
        snprintf(out, size, "fragmented: needs %s of one node%s, has at most %d x %d", groups, type,
                 lack->free_groups, lack->group);
    } else if (lack->free_groups > 0) {
        snprintf(out, size, "fragmented: needs %s%s, has %d x %d", groups, type, lack->free_groups,
                 lack->group);
    } else {
        snprintf(out, size, "fragmented: needs %s%s, has %d x %d", groups, type, lack->num_largest,
                 lack->largest);
    }
}

/* ---- the nearest that fits ---- */

static bool batch_divides(const JobSpec *spec, int64_t data)
{
    const TrainingSpec *t = spec ? spec->training : NULL;
    int64_t chunk;
    return !t ||
           (t->micro_batch_size > 0 && !__builtin_mul_overflow(data, t->micro_batch_size, &chunk) &&
            t->global_batch_size % chunk == 0);
}

/* The schedule's rules about micro-batches, and those of axes, with r's sizes. */
static bool rules_hold(const JobSpec *spec, const struct place_request *r)
{
    if (!spec || !spec->training || !spec->parallel || !spec->parallel->layout) {
        return true;
    }
    struct error why;
    JobSpec job = *spec;
    ParallelChoice choice = *spec->parallel;
    ParallelSpec layout = *spec->parallel->layout;
    layout.data = r->data;
    layout.tensor = r->tensor;
    choice.layout = &layout;
    job.parallel = &choice;
    return layout_micro_batches(&job) <= SCHEDULE_MAX_MICRO_BATCHES &&
           layout_rules_check(&job, &why) == 0;
}

/* The sizes still go together: what was carved out of the data axis, too. */
static bool sizes_divide(const struct place_request *wanted, const struct place_request *r)
{
    struct place_layout a, b;
    return place_layout_init(&b, r) &&
           (!place_layout_init(&a, wanted) || (b.expert >= a.expert && b.shard >= a.shard));
}

/* The largest data axis below `above` with which r fits; 0 = none does. */
static int32_t nearest_data(const struct free_map *empty, struct place_request r, int32_t above,
                            const JobSpec *spec)
{
    const struct place_request wanted = r;
    int64_t others = (int64_t)r.pipeline * r.context * r.tensor;
    int64_t most = others > 0 ? free_map_num(empty) / others : 0;
    for (r.data = most < above ? (int32_t)most : above - 1; r.data > 0; r.data--) {
        if (batch_divides(spec, r.data) && sizes_divide(&wanted, &r) && rules_hold(spec, &r) &&
            place_fits(empty, &r)) {
            return r.data;
        }
    }
    return 0;
}

bool place_nearest(const struct fabric *f, const struct place_request *r, const JobSpec *spec,
                   char *out, size_t size)
{
    struct free_map *empty = free_map_new(f);
    struct place_request near = *r;
    int32_t data = nearest_data(empty, near, r->data, spec);
    if (data > 0) {
        snprintf(out, size, "parallel.data: %d", data);
    }
    while (data == 0 && --near.tensor > 0) {
        if (r->tensor % near.tensor != 0) {
            continue;
        }
        data = nearest_data(empty, near, r->data + 1, spec);
        if (data == r->data) {
            snprintf(out, size, "parallel.tensor: %d", near.tensor);
        } else if (data > 0) {
            snprintf(out, size, "parallel.tensor: %d with parallel.data: %d", near.tensor, data);
        }
    }
    free_map_free(empty);
    return data > 0;
}
