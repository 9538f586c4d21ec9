/* tandem-probe looks at its host: the real program, with this host's processors and a management
 * library of the tests' own in place of NVIDIA's. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "plan/cluster.h"
#include "plan/fabric.h"
#include "proto/text.h"
#include "runtime/probe/gpus.h"

/* A folder with a file in the library's place that can't be loaded: the loader looks no further, so
 * that this host's own isn't found either, where it has a driver. */
static char bare[64];

static int make_bare(void **state)
{
    (void)state;
    char path[128];
    snprintf(bare, sizeof bare, "/tmp/discover_test.XXXXXX");
    if (!mkdtemp(bare)) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/libnvidia-ml.so.1", bare);
    return fs_write_atomic(path, "no library", 10, 0600, NULL);
}

static int remove_bare(void **state)
{
    (void)state;
    return fs_remove_tree(bare, NULL);
}

/* The reply as it came; NULL: the probe died. mode NULL: no library is found. */
static ProbeReply *discover(const char *folder, const char *mode)
{
    int in[2], out[2], status;
    static const uint8_t request[] = {0x48, 1}; /* discover: true */
    ProbeRequest *check = probe_request__unpack(NULL, sizeof request, request);
    assert_true(check && check->discover);
    probe_request__free_unpacked(check, NULL);
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", TANDEM_BIN_DIR, folder);
        setenv("LD_LIBRARY_PATH", mode ? path : bare, 1);
        setenv("TANDEM_FAKE_NVML", mode ? mode : "", 1);
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[1]);
        close(out[0]);
        if (mode && strcmp(mode, "crash") == 0) {
            close(2); /* a sanitizer has much to say of it */
        }
        alarm(60);
        execl(TANDEM_BIN_DIR "/tandem-probe", "tandem-probe", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    assert_int_equal(fs_write_all(in[1], request, sizeof request), 0);
    close(in[1]);
    struct buf bytes = {0};
    ssize_t n;
    while ((n = read(out[0], buf_reserve(&bytes, 4096), 4096)) > 0) {
        bytes.len += (size_t)n;
    }
    close(out[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    ProbeReply *reply = NULL;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        reply = probe_reply__unpack(NULL, bytes.len, (const uint8_t *)bytes.data);
        assert_non_null(reply);
        assert_null(reply->error);
        assert_non_null(reply->host);
        assert_int_equal(text_check_message(&reply->base, 1000, NULL), 0);
    }
    buf_free(&bytes);
    return reply;
}

static void assert_note(const ProbeReply *r, const char *part)
{
    assert_int_equal(r->n_notes, 1);
    if (!strstr(r->notes[0], part)) {
        fail_msg("\"%s\" does not say \"%s\"", r->notes[0], part);
    }
}

static void assert_devices(const ProbeReply *r, size_t num, const char *type)
{
    assert_int_equal(r->host->n_devices, num);
    for (size_t i = 0; i < num; i++) {
        assert_string_equal(r->host->devices[i]->type, type);
        assert_int_equal(r->host->devices[i]->mem_bytes, 85520809984);
    }
}

/* What it says is a node of a cluster file as it stands. */
static void assert_good_cluster(const ProbeReply *r, int32_t num_domains)
{
    ClusterSpec c = CLUSTER_SPEC__INIT, *checked;
    NodeInfo *nodes[] = {r->host};
    struct fabric *f = NULL;
    struct error err = {0};
    c.nodes = nodes;
    c.n_nodes = 1;
    checked = (ClusterSpec *)text_clone(&c.base);
    if (cluster_check("host", checked, &err) != 0 || fabric_new(&f, checked, &err) != 0) {
        fail_msg("%s", err.text);
    }
    assert_int_equal(f->num_domains, num_domains);
    fabric_free(f);
    cluster_spec__free_unpacked(checked, NULL);
}

static void a_host_without_a_driver_has_cores_and_memory_and_no_gpu(void **state)
{
    (void)state;
    cpu_set_t cpus;
    char name[65] = "";
    assert_int_equal(gethostname(name, sizeof name - 1), 0);
    assert_int_equal(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    ProbeReply *r = discover("", NULL);
    assert_non_null(r);
    assert_string_equal(r->host->name, name);
    assert_int_equal(r->host->cores, CPU_COUNT(&cpus));
    assert_true(r->host->mem_bytes > 64 << 20);
    assert_non_null(r->host->boot_id);
    assert_int_equal(r->host->n_devices, 0);
    assert_int_equal(r->n_notes, 0);
    probe_reply__free_unpacked(r, NULL);
    r = discover("fake-nvml", "none");
    assert_int_equal(r->host->n_devices, 0);
    assert_int_equal(r->n_notes, 0);
    probe_reply__free_unpacked(r, NULL);
}

/* NVSwitches join all of a host: the node is the domain, old driver or new. */
static void eight_gpus_on_switches_are_one_domain(void **state)
{
    (void)state;
    static const char *const folders[] = {"fake-nvml", "fake-nvml-old"};
    for (int i = 0; i < 2; i++) {
        ProbeReply *r = discover(folders[i], "dgx");
        assert_non_null(r);
        assert_devices(r, 8, "h100");
        assert_int_equal(r->host->devices[7]->index, 7);
        assert_null(r->host->devices[7]->domain);
        assert_int_equal(r->n_notes, 0);
        assert_good_cluster(r, 1);
        probe_reply__free_unpacked(r, NULL);
    }
}

/* What pinning, health and precision go by; what a driver doesn't tell is absent. */
static void gpus_have_names_places_and_capabilities(void **state)
{
    (void)state;
    ProbeReply *r = discover("fake-nvml", "dgx");
    assert_non_null(r);
    const DeviceInfo *d = r->host->devices[5];
    assert_string_equal(r->host->driver, "580.65.06");
    assert_string_equal(d->uuid, "GPU-00000000-0000-0000-0000-000000000005");
    assert_string_equal(d->pci, "00000001:15:00.0");
    assert_int_equal(d->numa_node, 1);
    assert_int_equal(d->compute_capability, 90);
    assert_true(d->has_ecc && d->ecc);
    probe_reply__free_unpacked(r, NULL);
    r = discover("fake-nvml", "volta");
    assert_int_equal(r->host->n_devices, 2);
    d = r->host->devices[1];
    assert_string_equal(d->type, "graphics-device");
    assert_int_equal(d->compute_capability, 70);
    assert_int_equal(d->numa_node, -1);
    assert_false(d->has_numa_node || d->has_ecc);
    probe_reply__free_unpacked(r, NULL);
}

static void pairs_on_bridges_are_domains_of_two(void **state)
{
    (void)state;
    ProbeReply *r = discover("fake-nvml", "bridge");
    assert_non_null(r);
    assert_devices(r, 4, "a100");
    assert_string_equal(r->host->devices[0]->domain, r->host->devices[1]->domain);
    assert_string_equal(r->host->devices[2]->domain, r->host->devices[3]->domain);
    assert_string_not_equal(r->host->devices[0]->domain, r->host->devices[2]->domain);
    assert_good_cluster(r, 2);
    probe_reply__free_unpacked(r, NULL);
}

/* Hosts of one rack name the same domain, so that it spans them in a cluster file. */
static void a_rack_is_named_by_its_fabric(void **state)
{
    (void)state;
    ProbeReply *r = discover("fake-nvml", "rack");
    assert_non_null(r);
    assert_devices(r, 4, "gb200");
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(r->host->devices[i]->domain,
                            "nvlink-abababababababababababababababab-7");
    }
    assert_good_cluster(r, 1);
    probe_reply__free_unpacked(r, NULL);
    /* The old driver can't tell; the host's own switches still can. */
    r = discover("fake-nvml-old", "rack");
    assert_devices(r, 4, "gb200");
    assert_null(r->host->devices[0]->domain);
    probe_reply__free_unpacked(r, NULL);
}

static void a_gpu_that_is_lost_is_named_and_the_others_are_there(void **state)
{
    (void)state;
    ProbeReply *r = discover("fake-nvml", "lost");
    assert_non_null(r);
    assert_devices(r, 7, "h100");
    assert_int_equal(r->host->devices[3]->index, 4);
    assert_note(r, "GPU 3 does not answer: GPU is lost");
    assert_good_cluster(r, 1);
    probe_reply__free_unpacked(r, NULL);
}

static void a_driver_that_fails_is_a_note_and_no_error(void **state)
{
    (void)state;
    static const struct {
        const char *mode, *words;
    } cases[] = {{"broken", "the NVIDIA driver does not answer: Driver/library version mismatch"},
                 {"uncounted", "GPUs can't be counted"}};
    for (int i = 0; i < 2; i++) {
        ProbeReply *r = discover("fake-nvml", cases[i].mode);
        assert_non_null(r);
        assert_int_equal(r->host->n_devices, 0);
        assert_true(r->host->cores > 0);
        assert_note(r, cases[i].words);
        probe_reply__free_unpacked(r, NULL);
    }
}

static void what_the_library_says_is_bounded(void **state)
{
    (void)state;
    ProbeReply *r = discover("fake-nvml", "many");
    assert_non_null(r);
    assert_devices(r, 64, "h100");
    assert_note(r, "4000000000 GPUs are not believed");
    probe_reply__free_unpacked(r, NULL);
    r = discover("fake-nvml", "strange");
    assert_non_null(r);
    assert_int_equal(r->host->n_devices, 7);
    assert_string_equal(r->host->devices[0]->type, "gpu");
    assert_false(r->host->devices[0]->has_mem_bytes);
    assert_false(r->host->devices[0]->has_compute_capability);
    assert_int_equal(r->host->devices[0]->uuid[95], '?');
    assert_note(r, "GPU 3 does not answer: ?[31m?? words");
    probe_reply__free_unpacked(r, NULL);
}

/* The probe is there to be killed by such a thing; whoever asked goes on. */
static void a_library_that_crashes_takes_the_probe_only(void **state)
{
    (void)state;
    assert_null(discover("fake-nvml", "crash"));
}

static void names_of_cards_become_words(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"NVIDIA H100 80GB HBM3", "h100"},
        {"NVIDIA H200", "h200"},
        {"NVIDIA A100-SXM4-80GB", "a100"},
        {"NVIDIA B200", "b200"},
        {"NVIDIA GB200", "gb200"},
        {"NVIDIA GH200 480GB", "gh200"},
        {"NVIDIA H100 PCIe", "h100-pcie"},
        {"NVIDIA H100 NVL", "h100-nvl"},
        {"NVIDIA A100-SXM4-40GB", "a100-40gb"},
        {"NVIDIA A100-PCIE-40GB", "a100-40gb"},
        {"NVIDIA A100 80GB PCIe", "a100-80gb-pcie"},
        {"NVIDIA L40S", "l40s"},
        {"NVIDIA L4", "l4"},
        {"NVIDIA RTX A6000", "rtx-a6000"},
        {"NVIDIA GeForce RTX 4090 D", "geforce-rtx-4090-d"},
        {"NVIDIA GeForce RTX 4090 Laptop GPU", "geforce-rtx-4090-laptop-gpu"},
        {"NVIDIA H100 80GB HBM3 MIG 1g.10gb", "h100-80gb-hbm3-mig-1g-10gb"},
        {"NVIDIA GeForce RTX 4090", "geforce-rtx-4090"},
        {"Tesla V100-SXM2-16GB", "v100-sxm2-16gb"},
        {"", "gpu"},
        {"???", "gpu"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char type[GPUS_TYPE_MAX];
        gpus_type(cases[i][0], type);
        assert_string_equal(type, cases[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_without_a_driver_has_cores_and_memory_and_no_gpu),
        cmocka_unit_test(eight_gpus_on_switches_are_one_domain),
        cmocka_unit_test(gpus_have_names_places_and_capabilities),
        cmocka_unit_test(pairs_on_bridges_are_domains_of_two),
        cmocka_unit_test(a_rack_is_named_by_its_fabric),
        cmocka_unit_test(a_gpu_that_is_lost_is_named_and_the_others_are_there),
        cmocka_unit_test(a_driver_that_fails_is_a_note_and_no_error),
        cmocka_unit_test(what_the_library_says_is_bounded),
        cmocka_unit_test(a_library_that_crashes_takes_the_probe_only),
        cmocka_unit_test(names_of_cards_become_words),
    };
    return cmocka_run_group_tests(tests, make_bare, remove_bare);
}
