/* Placements that are known: 33 gangs on clusters as people have them. Each is held against
 * tests/golden/placement/NAME.txt, and checked rule by rule by tests/place/place_check.
 * TANDEM_GOLDEN=write writes the files anew: look at the difference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/fs.h"
#include "plan/mesh.h"
#include "plan/placement.h"
#include "tests/place/place_check.h"
#include "tests/unit/fabric_case.h"

#define FOLDER TANDEM_SOURCE_DIR "/tests/golden/placement"
#define LINES_MAX 64

/* Nodes of 8 under leaves of 2. */
#define DGX "groups: [{name: n, count: 8, devices: 8, type: h100, nodes_per_leaf: 2}]"
/* Two leaves under a spine. */
#define SPINES                                                                                     \
    "groups: [{name: n, count: 16, devices: 8, type: h100, nodes_per_leaf: 2, leaves_per_spine: "  \
    "2}]"
/* The same without a switch tree. */
#define FLAT "groups: [{name: n, count: 4, devices: 8, type: h100}]"
/* Two racks of 18 x 4. */
#define NVL72                                                                                      \
    "groups: [{name: r, count: 36, devices: 4, type: gb200, nodes_per_domain: 18,"                 \
    " nodes_per_leaf: 18, leaves_per_spine: 2}]"
#define MIXED                                                                                      \
    "groups: [{name: a, count: 2, devices: 8, type: a100, nodes_per_leaf: 2},"                     \
    " {name: h, count: 4, devices: 8, type: h100, nodes_per_leaf: 2},"                             \
    " {name: c, count: 1, devices: 16, type: cpu}]"
/* This host, split: four nodes of four CPU devices, two domains. */
#define SPLIT                                                                                      \
    "groups: [{name: s, count: 4, devices: 4, type: cpu, nodes_per_domain: 2, nodes_per_leaf: 2}]"
#define THREE "groups: [{name: t, count: 3, devices: 10, type: h100}]"
#define FIVES "groups: [{name: f, count: 6, devices: 5, type: h100, nodes_per_leaf: 3}]"
#define LARGE                                                                                      \
    "groups: [{name: n, count: 2048, devices: 8, type: h100, nodes_per_leaf: 32,"                  \
    " leaves_per_spine: 8, nics: 8, nic_bytes_per_s: 5.0e10}]"

#define ASK(d, p, c, t, e, s)                                                                      \
    {                                                                                              \
        .data = d, .pipeline = p, .context = c, .tensor = t, .expert = e, .shard = s,              \
        .type = "any"                                                                              \
    }
static const char *const pin_n3[] = {"n3"};
static const char *const pin_n1_n6[] = {"n6", "n1"};

static const struct place_known {
    const char *name, *cluster, *taken;
    struct place_request r;
} known[] = {
    {"dgx-one-node", DGX, "", ASK(1, 1, 1, 8, 1, 1)},
    {"dgx-best-fit", DGX, "n0:0-3,n5:0-5", ASK(2, 1, 1, 1, 1, 1)},
    {"dgx-best-fit-leaf", DGX, "n0:0-3,n4:0-3,n5:0-7", ASK(1, 1, 1, 4, 1, 1)},
    {"dgx-two-nodes-one-leaf", DGX, "n0:0-7", ASK(2, 1, 1, 8, 1, 1)},
    {"dgx-pipeline-under-a-leaf", DGX, "n1:0-7,n2:0-7", ASK(1, 2, 1, 8, 1, 1)},
    {"dgx-pipeline-over-leaves", DGX, "n1:0-7,n3:0-7,n5:0-7,n7:0-7", ASK(1, 4, 1, 8, 1, 1)},
    {"dgx-pipelines-each-under-a-leaf", DGX, "", ASK(4, 2, 1, 8, 1, 1)},
    {"dgx-stages-stay-with-data-outermost", DGX, "", ASK(4, 4, 1, 4, 1, 1)},
    {"dgx-context", DGX, "", ASK(2, 2, 4, 2, 1, 1)},
    {"dgx-context-beyond-a-domain", DGX, "", ASK(1, 1, 4, 4, 1, 1)},
    {"dgx-experts-in-a-domain", DGX, "", ASK(8, 2, 1, 1, 8, 1)},
    {"dgx-experts-over-domains", DGX, "", ASK(16, 2, 1, 1, 16, 1)},
    {"dgx-experts-half-drained", DGX, "n1:0-3,n2:0-3,n3:0-3,n4:0-7,n5:0-7,n6:0-7,n7:0-7",
     ASK(16, 1, 1, 1, 8, 1)},
    {"dgx-experts-of-a-context", DGX, "", ASK(2, 2, 4, 2, 2, 1)},
    {"dgx-shards-through-stages", DGX, "", ASK(8, 4, 1, 1, 1, 4)},
    {"dgx-shards-and-contexts", DGX, "", ASK(4, 2, 2, 1, 1, 4)},
    {"dgx-shards-and-experts", DGX, "", ASK(12, 1, 1, 1, 2, 3)},
    {"dgx-pinned",
     DGX,
     "n3:0-3",
     {.data = 4,
      .pipeline = 1,
      .context = 1,
      .tensor = 1,
      .expert = 1,
      .type = "any",
      .nodes = pin_n3,
      .num_nodes = 1}},
    {"dgx-pinned-apart",
     DGX,
     "",
     {.data = 2,
      .pipeline = 1,
      .context = 1,
      .tensor = 8,
      .expert = 1,
      .type = "any",
      .nodes = pin_n1_n6,
      .num_nodes = 2}},
    {"dgx-one-spine", SPINES, "n0:0-7,n4:0-7", ASK(4, 1, 1, 8, 1, 1)},
    {"flat-two-nodes", FLAT, "n0:0,n2:7", ASK(2, 1, 1, 8, 1, 1)},
    {"nvl72-tensor-over-nodes", NVL72, "", ASK(1, 1, 1, 16, 1, 1)},
    {"nvl72-experts-in-the-rack", NVL72, "r20:0-3", ASK(64, 1, 1, 1, 64, 1)},
    {"nvl72-two-racks", NVL72, "", ASK(16, 2, 1, 4, 1, 1)},
    {"mixed-any-takes-the-scarcer", MIXED, "", ASK(1, 1, 1, 8, 1, 1)},
    {"mixed-any-is-one-type", MIXED, "a0:0-3", ASK(3, 1, 1, 4, 1, 1)},
    {"split-host", SPLIT, "s0:0-1", ASK(2, 2, 1, 2, 1, 1)},
    {"three-tens-leave-two-each", THREE, "", ASK(3, 1, 1, 8, 1, 1)},
    {"fives-odd-sizes", FIVES, "", ASK(5, 1, 1, 3, 1, 1)},
    {"large-405b-short-context", LARGE, "", ASK(128, 16, 1, 8, 1, 1)},
    {"large-405b-long-context", LARGE, "", ASK(8, 16, 16, 8, 1, 1)},
    {"three-tens-fragmented", THREE, "t0:0-2,t1:0-3,t2:0-4", ASK(1, 1, 1, 8, 1, 1)},
    {"three-tens-never", THREE, "", ASK(12, 1, 1, 8, 1, 1)},
};

/* ---- in words ---- */

static void print_ask(struct buf *out, const struct place_known *k)
{
    const struct place_request *r = &k->r;
    buf_printf(out, "cluster %s\ntaken %s\n", k->cluster, *k->taken ? k->taken : "nothing");
    buf_printf(out, "ask data %d, pipeline %d, context %d, tensor %d, expert %d, shard %d\n",
               r->data, r->pipeline, r->context, r->tensor, r->expert, r->shard);
}

static void print_groups(struct buf *out, const Plan *p)
{
    static const char *const axes[] = {"data", "tensor", "pipeline", "context", "expert"};
    static const char *const links[] = {"none", "domain", "node", "leaf", "tree", "far"};
    for (size_t i = 0; i < p->n_groups; i++) {
        const AxisGroup *g = p->groups[i];
        buf_printf(out,
                   "%s: %lld groups of %lld, worst link %s (%.3g B/s, %.2g s), %lld in a domain, "
                   "%lld under a leaf\n",
                   axes[g->axis], (long long)g->num_groups, (long long)g->size, links[g->worst],
                   g->bytes_per_s, g->latency_s, (long long)g->in_domain, (long long)g->in_leaf);
    }
}

/* "ranks 0-7: n0:0-7", a line for each run. Of a long list the beginning, and a sum over all. */
static void print_ranks(struct buf *out, const struct fabric *f, const int32_t *devices,
                        int32_t num)
{
    uint64_t sum = 14695981039346656037u; /* FNV-1a */
    int32_t lines = 0;
    for (int32_t i = 0, end; i < num; i = end) {
        const struct fabric_device *d = &f->devices[devices[i]];
        end = i + 1;
        while (end < num && devices[end] == devices[end - 1] + 1 &&
               f->devices[devices[end]].node == d->node) {
            end++;
        }
        for (int32_t j = i; j < end; j++) {
            sum = (sum ^ (uint64_t)devices[j]) * 1099511628211u;
        }
        if (lines++ < LINES_MAX) {
            buf_printf(out, "ranks %d-%d: %s:%d-%d\n", i, end - 1, f->nodes[d->node].name, d->index,
                       f->devices[devices[end - 1]].index);
        }
    }
    if (lines > LINES_MAX) {
        buf_printf(out, "%d lines more; sum %016llx\n", lines - LINES_MAX, (unsigned long long)sum);
    }
}

static void print_score(struct buf *out, const PlacementScore *s)
{
    struct check_score parts = check_of(s);
    buf_printf(out, "score");
    for (int i = 0; i < CHECK_PARTS; i++) {
        buf_printf(out, " %s %lld", check_part_names[i], (long long)parts.part[i]);
    }
    buf_printf(out, "\n");
}

static void hold_against(const char *name, const struct buf *out)
{
    char path[512], *text;
    size_t len;
    struct error err = {0};
    const char *mode = getenv("TANDEM_GOLDEN");
    snprintf(path, sizeof path, "%s/%s.txt", FOLDER, name);
    if (mode && strcmp(mode, "write") == 0) {
        assert_int_equal(fs_write_atomic(path, out->data, out->len, 0644, &err), 0);
        return;
    }
    if (fs_read_file(path, 1 << 20, &text, &len, &err) != 0) {
        fail_msg("%s", err.text);
    }
    if (len != out->len || memcmp(text, out->data, len) != 0) {
        fail_msg("%s: is\n%.*s\nwas\n%.*s", name, (int)out->len, out->data, (int)len, text);
    }
    free(text);
}

/* ---- the rules ---- */

/* Groups by the formula of the mesh, all pairs of each. */
static void check_groups_of(const struct fabric *f, const struct place_request *r,
                            const int32_t *devices, const AxisGroup *g)
{
    Mesh mesh = MESH__INIT;
    int64_t seen = 0, in_domain = 0, in_leaf = 0;
    Link worst = LINK_NONE;
    mesh.data = r->data;
    mesh.pipeline = r->pipeline;
    mesh.context = r->context;
    mesh.tensor = r->tensor;
    mesh.expert = r->expert;
    mesh.num_ranks = (int64_t)r->data * r->pipeline * r->context * r->tensor;
    int32_t ranks[256], mine[256];
    assert_true(g->size <= 256);
    for (int32_t rank = 0; rank < mesh.num_ranks; rank++) {
        assert_int_equal(mesh_group(&mesh, g->axis, rank, ranks), g->size);
        assert_int_equal(place_group(r, g->axis, rank, mine), g->size);
        assert_memory_equal(ranks, mine, (size_t)g->size * sizeof *ranks);
        if (ranks[0] != rank) {
            continue;
        }
        Link here = LINK_NONE;
        for (int32_t i = 0; i < g->size; i++) {
            for (int32_t j = 0; j < i; j++) {
                Link link = fabric_link(f, devices[ranks[i]], devices[ranks[j]]);
                here = link > here ? link : here;
            }
        }
        seen++;
        worst = here > worst ? here : worst;
        in_domain += here <= LINK_DOMAIN;
        in_leaf += here <= LINK_LEAF;
    }
    assert_int_equal(seen, g->num_groups);
    assert_int_equal(worst, g->worst);
    assert_int_equal(in_domain, g->in_domain);
    assert_int_equal(in_leaf, g->in_leaf);
}

static void check_found(const struct free_map *m, const struct place_request *r,
                        const int32_t *devices, int32_t num, const PlacementScore *score,
                        struct buf *out)
{
    const struct fabric *f = free_map_fabric(m);
    struct check_score got, said = check_of(score);
    int part;
    const char *wrong = check_placement(m, r, devices, &got);
    if (wrong || check_compare(&got, &said, &part) != 0) {
        fail_msg("%s", wrong ? wrong : check_part_names[part]);
    }
    Plan plan = PLAN__INIT;
    plan.n_placement = (size_t)num;
    placement_set_groups(&plan, f, r, devices);
    for (size_t i = 0; i < plan.n_groups; i++) {
        check_groups_of(f, r, devices, plan.groups[i]);
    }
    print_score(out, score);
    print_groups(out, &plan);
    print_ranks(out, f, devices, num);
    for (size_t i = 0; i < plan.n_groups; i++) {
        axis_group__free_unpacked(plan.groups[i], NULL);
    }
    free(plan.groups);
}

static void take(struct free_map *m, const char *text)
{
    struct device_set *s = NULL;
    struct error err = {0};
    int32_t unknown = 0;
    if (fabric_parse_set(free_map_fabric(m), text, &s, &unknown, &err) != 0 || unknown > 0) {
        fail_msg("%s: %s", text, err.text);
    }
    for (int32_t i = 0; i < device_set_num(s); i++) {
        free_map_take(m, s->device[i]);
    }
    device_set_free(s);
}

static void a_known_gang_lies_where_it_always_did(void **state)
{
    const struct place_known *k = *state;
    struct fabric *f = fabric_case(k->cluster);
    struct free_map *m = free_map_new(f);
    int32_t num = k->r.data * k->r.pipeline * k->r.context * k->r.tensor;
    int32_t *devices = calloc((size_t)num, sizeof *devices);
    struct buf out = {0};
    struct place_lack lack;
    PlacementScore score;
    assert_non_null(devices);
    take(m, k->taken);
    print_ask(&out, k);
    enum place_result result = place_find(m, &k->r, devices, &score, &lack);
    assert_int_equal(place_fits(m, &k->r), result == PLACE_OK);
    if (result == PLACE_OK) {
        check_found(m, &k->r, devices, num, &score, &out);
    } else {
        char words[256], near[64];
        place_lack_words(&lack, result, words, sizeof words);
        buf_printf(&out, "%s\n", words);
        if (result == PLACE_NEVER && place_nearest(f, &k->r, NULL, near, sizeof near)) {
            buf_printf(&out, "%s fits\n", near);
        }
    }
    hold_against(k->name, &out);
    buf_free(&out);
    free(devices);
    free_map_free(m);
    fabric_free(f);
}

int main(void)
{
    enum { NUM = sizeof known / sizeof known[0] };
    struct CMUnitTest tests[NUM];
    for (size_t i = 0; i < NUM; i++) {
        tests[i] = (struct CMUnitTest){known[i].name, a_known_gang_lies_where_it_always_did, NULL,
                                       NULL, (void *)(uintptr_t)&known[i]};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
