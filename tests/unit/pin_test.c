/* Where ranks of GPUs run: from a tree like sysfs and what the driver tells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/fs.h"
#include "runtime/node/pin.h"

#define MOST_GPUS 8

static char root[64];
static unsigned char everywhere[PIN_CPUS / 8];

static void put(const char *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void put(const char *text, const char *fmt, ...)
{
    char name[200], path[300];
    struct error err;
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, sizeof name, fmt, args);
    va_end(args);
    snprintf(path, sizeof path, "%s/%s", root, name);
    *strrchr(path, '/') = 0;
    assert_int_equal(fs_mkdirs(path, 0700, &err), 0);
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%s\n", text);
    fclose(f);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/pin_test_XXXXXX");
    assert_non_null(mkdtemp(root));
    memset(everywhere, 0xff, sizeof everywhere);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

/* Two sockets of eight cores with two threads each, numbered as Linux does it: CPU 16 is the other
 * thread of core 0. Four GPUs, two near each. */
static void make_host(void)
{
    put("0-7,16-23", "devices/system/node/node0/cpulist");
    put("8-15,24-31", "devices/system/node/node1/cpulist");
    for (int cpu = 0; cpu < 32; cpu++) {
        char list[16];
        snprintf(list, sizeof list, "%d,%d", cpu % 16, cpu % 16 + 16);
        put(list, "devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    }
    for (int gpu = 0; gpu < 4; gpu++) {
        put(gpu < 2 ? "0" : "1", "bus/pci/devices/0000:%02x:00.0/numa_node", 0x1a + gpu);
    }
}

static DeviceInfo gpus[MOST_GPUS];
static DeviceInfo *list[MOST_GPUS];
static char places[MOST_GPUS][32];
static NodeInfo host;

static void have_gpus(int num)
{
    node_info__init(&host);
    for (int i = 0; i < num; i++) {
        device_info__init(&gpus[i]);
        snprintf(places[i], sizeof places[i], "00000000:%02X:00.0", 0x1a + i);
        gpus[i].has_index = 1;
        gpus[i].index = i;
        gpus[i].pci = places[i];
        list[i] = &gpus[i];
    }
    host.devices = list;
    host.n_devices = (size_t)num;
}

static void assert_pin(int32_t device, int threads, const unsigned char *allowed, const char *words)
{
    struct pin p;
    pin_find(&p, root, &host, device, threads, allowed);
    if (!strstr(p.words, words)) {
        fail_msg("\"%s\" does not say \"%s\"", p.words, words);
    }
    assert_int_equal(p.is_pinned, strstr(words, "anywhere") == NULL);
}

/* Whoever shares a socket shares its cores alike, and a core is nobody else's. */
static void gpus_of_a_node_have_equal_shares_of_whole_cores(void **state)
{
    (void)state;
    make_host();
    have_gpus(4);
    assert_pin(0, 8, everywhere, "GPU 0: CPUs 0-3,16-19 of NUMA node 0");
    assert_pin(1, 8, everywhere, "GPU 1: CPUs 4-7,20-23 of NUMA node 0");
    assert_pin(2, 8, everywhere, "GPU 2: CPUs 8-11,24-27 of NUMA node 1");
    assert_pin(3, 1, everywhere, "GPU 3: CPUs 12-15,28-31 of NUMA node 1");
}

static void a_share_that_is_too_small_is_the_whole_node(void **state)
{
    (void)state;
    make_host();
    have_gpus(4);
    assert_pin(1, 9, everywhere, "GPU 1: CPUs 0-7,16-23 of NUMA node 0, shared with its other");
}

/* A control group may leave fewer CPUs, or none of a node. */
static void only_cpus_that_may_be_used_are_shared_out(void **state)
{
    (void)state;
    unsigned char allowed[PIN_CPUS / 8] = {0x3f}; /* 0-5, one thread of each core */
    make_host();
    have_gpus(4);
    assert_pin(0, 1, allowed, "GPU 0: CPUs 0-2 of NUMA node 0");
    assert_pin(1, 1, allowed, "GPU 1: CPUs 3-5 of NUMA node 0");
    assert_pin(2, 1, allowed,
               "GPU 2: runs anywhere, as this process may use no CPU of NUMA node 1");
}

/* Virtual machines say -1, or nothing; then the driver may know. */
static void who_is_near_nothing_runs_anywhere_and_says_so(void **state)
{
    (void)state;
    make_host();
    have_gpus(6);
    put("-1", "bus/pci/devices/0000:1e:00.0/numa_node");
    assert_pin(4, 1, everywhere, "GPU 4: runs anywhere, as nobody tells which NUMA node");
    assert_pin(7, 1, everywhere, "GPU 7: runs anywhere, as the driver doesn't tell of it");
    gpus[5].has_numa_node = 1;
    gpus[5].numa_node = 1;
    assert_pin(5, 1, everywhere, "of NUMA node 1");
    gpus[5].numa_node = INT32_MAX;
    assert_pin(5, 1, everywhere, "GPU 5: runs anywhere");
    struct pin p;
    pin_find(&p, root, NULL, 0, 1, everywhere);
    assert_false(p.is_pinned);
}

/* What stands there is not ours: it is bounded, and nonsense is nothing. */
static void strange_files_pin_nothing(void **state)
{
    (void)state;
    static const char *const lists[] = {"", "x", "99999999999999999999", "9000-9999", "-1", "5-2"};
    make_host();
    have_gpus(4);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        put(lists[i], "devices/system/node/node0/cpulist");
        assert_pin(0, 1, everywhere, "GPU 0: runs anywhere, as this process may use no CPU");
    }
    put("0-4294967296", "devices/system/node/node0/cpulist");
    assert_pin(0, 1, everywhere, "GPU 0: CPUs 0-");
    put("4096", "bus/pci/devices/0000:1a:00.0/numa_node");
    assert_pin(0, 1, everywhere, "GPU 0: runs anywhere");
    snprintf(places[0], sizeof places[0], "../../../etc");
    assert_pin(0, 1, everywhere, "GPU 0: runs anywhere");
}

/* Only what is started meanwhile is pinned. */
static void this_thread_is_as_it_was_behind_a_start(void **state)
{
    (void)state;
    unsigned char before[PIN_CPUS / 8], within[PIN_CPUS / 8], after[PIN_CPUS / 8];
    struct pin_before kept;
    struct pin p = {.is_pinned = true};
    int first = 0;
    pin_allowed(before);
    while (!(before[first / 8] >> (first % 8) & 1)) {
        first++;
    }
    p.cpus[first / 8] = (unsigned char)(1u << (first % 8));
    pin_begin(&p, &kept);
    pin_allowed(within);
    pin_end(&kept);
    pin_allowed(after);
    assert_memory_equal(within, p.cpus, sizeof within);
    assert_memory_equal(after, before, sizeof after);
    pin_begin(NULL, &kept);
    pin_end(&kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gpus_of_a_node_have_equal_shares_of_whole_cores, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_share_that_is_too_small_is_the_whole_node, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(only_cpus_that_may_be_used_are_shared_out, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_is_near_nothing_runs_anywhere_and_says_so, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(strange_files_pin_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(this_thread_is_as_it_was_behind_a_start, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
