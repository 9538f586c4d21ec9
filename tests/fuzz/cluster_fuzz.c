/* Any bytes as a cluster file: what passes the check is a fabric whose parts are ranges, stays as
 * it is when checked again, and whose sets of devices are read as they were written. And any bytes
 * as such a set. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "plan/cluster.h"
#include "plan/fabric.h"
#include "plan/free_map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_parts(const struct fabric *f, const struct fabric_part *parts, int32_t num)
{
    int32_t next = 0;
    for (int32_t i = 0; i < num; i++) {
        ASSERT(parts[i].first_device >= next && parts[i].num_devices > 0);
        next = parts[i].first_device + parts[i].num_devices;
    }
    ASSERT(next <= f->num_devices);
}

static void check_set(const struct fabric *f)
{
    int32_t devices[64], num = 0, unknown;
    for (int32_t d = 0; d < f->num_devices && num < 64; d += 1 + d % 3) {
        devices[num++] = d;
    }
    struct device_set *s = device_set_new(devices, num), *again;
    struct buf text = {0};
    struct error err;
    fabric_print_set(f, s, &text);
    ASSERT(fabric_parse_set(f, text.data, &again, &unknown, &err) == 0 && unknown == 0);
    ASSERT(device_set_equal(s, again));
    buf_free(&text);
    device_set_free(s);
    device_set_free(again);
}

static void check_fabric(const struct fabric *f)
{
    check_parts(f, f->nodes, f->num_nodes);
    check_parts(f, f->domains, f->num_domains);
    for (int32_t l = 0; l < f->num_levels; l++) {
        check_parts(f, f->switches[l], f->num_switches[l]);
    }
    struct free_map *m = free_map_new(f);
    for (int32_t d = 0; d < f->num_devices; d += 1 + d / 8) {
        const struct fabric_device *x = &f->devices[d];
        ASSERT(fabric_find_device(f, f->nodes[x->node].name, x->index) == d);
        ASSERT(fabric_link(f, 0, d) == fabric_link(f, d, 0));
        ASSERT(free_map_take(m, d));
    }
    free_map_free(m);
    check_set(f);
}

/* As stored with a job: "a:0-3,b:1". */
static void check_set_text(const uint8_t *data, size_t size)
{
    static const char text[] =
        "nodes: [{name: a, devices: [{count: 8}]}, {name: b, devices: [{}]}]";
    static struct fabric *f;
    struct error err;
    struct device_set *s, *again;
    int32_t unknown;
    if (!f) {
        ClusterSpec *c;
        ASSERT(cluster_parse("c.yaml", text, sizeof text - 1, &c, &err) == 0);
        ASSERT(fabric_new(&f, c, &err) == 0);
        cluster_spec__free_unpacked(c, NULL);
    }
    char *set = strndup((const char *)data, size);
    ASSERT(set);
    if (fabric_parse_set(f, set, &s, &unknown, &err) == 0) {
        struct buf out = {0};
        fabric_print_set(f, s, &out);
        ASSERT(fabric_parse_set(f, out.data ? out.data : "", &again, &unknown, &err) == 0);
        ASSERT(unknown == 0 && device_set_equal(s, again));
        buf_free(&out);
        device_set_free(s);
        device_set_free(again);
    }
    free(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    ClusterSpec *c;
    struct fabric *f;
    check_set_text(data, size);
    if (cluster_parse("c.yaml", (const char *)data, size, &c, &err) != 0) {
        ASSERT(err.code == ERR_INVALID_ARGUMENT && strncmp(err.text, "c.yaml", 6) == 0);
        return 0;
    }
    ASSERT(c->n_nodes >= 1 && c->n_groups == 0);
    ASSERT(fabric_new(&f, c, &err) == 0);
    check_fabric(f);
    fabric_free(f);
    ASSERT(cluster_check("c.yaml", c, &err) == 0);
    cluster_spec__free_unpacked(c, NULL);
    return 0;
}
