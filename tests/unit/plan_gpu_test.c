/* Jobs on GPUs: which backend and precision a job gets that leaves them open, what is refused, what
 * lies where. */
#include <stdio.h>
#include <string.h>

#include "plan/cluster.h"
#include "plan/device_types.h"
#include "plan/memory.h"
#include "plan/spec_check.h"
#include "plan_fixture.h"
#include "proto/text.h"

/* The first `num` devices of the case are GPUs of that type. */
static void be_gpus(size_t num, const char *type)
{
    for (size_t i = 0; i < num; i++) {
        c->devices[i].type = (char *)(uintptr_t)type;
    }
}

/* The plan says what was chosen, in the place of the word. */
static void chosen(const char *backend, const char *precision)
{
    Plan *p = plan_case_build(c);
    assert_string_equal(p->backend, backend);
    assert_string_equal(p->spec->training->precision, precision);
    assert_string_equal(p->spec->resources->backend, backend);
    plan__free_unpacked(p, NULL);
}

/* ---- what is left open ---- */

/* bf16 on GPUs, else fp32; who says what he wants gets that. */
static void precision_follows_the_backend(void **state)
{
    (void)state;
    chosen("cpu", "fp32");
    c->training.precision = (char *)"bf16";
    chosen("cpu", "bf16");
    c->resources.backend = (char *)"ref";
    chosen("ref", "bf16");
    c->training.precision = (char *)"auto";
    chosen("ref", "fp32");
    be_gpus(4, "h100");
    c->resources.backend = (char *)"cuda";
    chosen("cuda", "bf16");
    c->training.precision = (char *)"fp32";
    chosen("cuda", "fp32");
}

/* GPUs where there are enough of them, then CPU devices; a type that is named decides, as fp64
 * does.
 */
static void the_backend_follows_the_devices(void **state)
{
    (void)state;
    plan_case_cluster(c, 2, 4, 8, 0);
    chosen("cpu", "fp32");
    be_gpus(4, "h100");
    chosen("cuda", "bf16");
    c->layout.data = 4;
    chosen("cuda", "bf16");
    be_gpus(3, "h100");
    c->devices[3].type = (char *)"cpu";
    chosen("cpu", "fp32"); /* three GPUs, five others */
    c->layout.data = 2;
    c->resources.type = (char *)"cpu";
    chosen("cpu", "fp32");
    c->resources.type = (char *)"h100";
    chosen("cuda", "bf16");
    c->resources.type = (char *)"any";
    c->training.precision = (char *)"fp64";
    chosen("ref", "fp64");
    /* Of the nodes that may be used. */
    char *nodes[] = {(char *)"node1"};
    c->training.precision = (char *)"auto";
    c->resources.nodes = nodes;
    c->resources.n_nodes = 1;
    chosen("cpu", "fp32");
}

/* A job that was planned once keeps what it got, whatever the cluster has become. */
static void a_job_keeps_what_was_chosen(void **state)
{
    (void)state;
    plan_case_cluster(c, 1, 8, 8, 0);
    be_gpus(4, "h100");
    Plan *first = plan_case_build(c);
    be_gpus(4, "cpu");
    c->input.spec = first->spec;
    plan_case_refused(
        c, "resources.backend: cuda: 2 GPUs wanted, the cluster has none; use auto or cpu");
    be_gpus(8, "h100");
    Plan *again = plan_case_build(c);
    assert_string_equal(again->backend, "cuda");
    assert_string_equal(again->spec->training->precision, "bf16");
    plan__free_unpacked(again, NULL);
    plan__free_unpacked(first, NULL);
}

/* ---- refused ---- */

static void fp64_is_not_for_gpus(void **state)
{
    (void)state;
    be_gpus(4, "h100");
    c->training.precision = (char *)"fp64";
    c->resources.backend = (char *)"cuda";
    plan_case_refused(c, "resources.backend: training.precision fp64 needs ref, not cuda");
    c->resources.backend = (char *)"auto";
    plan_case_refused(c, "has 0 of type cpu, all that backend ref runs on");
}

static void older_cards_are_known_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int32_t capability;
    } names[] = {
        {"a100", 80},
        {"h100", 90},
        {"gb200", 100},
        {"v100", 70},
        {"v100-sxm2-16gb", 70},
        {"tesla-v100s-pcie-32gb", 70},
        {"t4", 75},
        {"p100-pcie-16gb", 60},
        {"p40", 61},
        {"k80", 37},
        {"geforce-gtx-1080-ti", 75}, /* 6.1, in truth: below 8.0 in any case */
        {"geforce-rtx-2080-ti", 75},
        {"rtx-2070-super", 75},
        {"quadro-rtx-8000", 75},
        {"titan-v", 75},
        {"geforce-rtx-2050", 0}, /* an Ampere */
        {"geforce-rtx-3090", 86},
        {"geforce-rtx-4090", 89},
        {"rtx-a6000", 86},
        {"l40s", 89},
        {"gpu", 0},
        {"", 0},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (device_types_capability(names[i].name) != names[i].capability) {
            fail_msg("%s: %d", names[i].name, device_types_capability(names[i].name));
        }
    }
}

/* By the name of the type, by what the driver says of a device, or by the file. fp32 runs there. */
static void bf16_is_refused_below_8_0(void **state)
{
    (void)state;
    DeviceType file = DEVICE_TYPE__INIT, *types[] = {&file};
    be_gpus(4, "v100-sxm2-16gb");
    plan_case_refused(c, "training.precision: bf16 needs GPUs of compute capability 8.0 (A100) or "
                         "newer, type v100-sxm2-16gb has 7.0; use fp32");
    c->training.precision = (char *)"fp32";
    chosen("cuda", "fp32");
    c->training.precision = (char *)"auto";
    be_gpus(4, "some-card");
    chosen("cuda", "bf16"); /* not known: tried */
    c->devices[2].has_compute_capability = 1;
    c->devices[2].compute_capability = 75;
    plan_case_refused(c, "type some-card has 7.5; use fp32");
    c->devices[2].compute_capability = 120;
    chosen("cuda", "bf16");
    c->devices[2].compute_capability = 0;
    file.name = (char *)"some-card";
    file.has_compute_capability = 1;
    file.compute_capability = 61;
    c->cluster.types = types;
    c->cluster.n_types = 1;
    plan_case_refused(c, "type some-card has 6.1; use fp32");
}

/* Where there are newer ones, those. */
static void older_cards_are_passed_over(void **state)
{
    (void)state;
    plan_case_cluster(c, 2, 2, 8, 0);
    be_gpus(2, "t4");
    c->devices[2].type = c->devices[3].type = (char *)"a100";
    Plan *p = plan_case_build(c);
    assert_string_equal(p->placement[0]->node, "node1");
    plan__free_unpacked(p, NULL);
    c->resources.type = (char *)"t4";
    plan_case_refused(c, "type t4 has 7.5; use fp32");
    c->resources.type = (char *)"any";
    c->layout.data = 4;
    plan_case_refused(c, "resources.devices: 4 wanted, the cluster has 2");
}

static void more_gpus_than_there_are_are_refused(void **state)
{
    (void)state;
    be_gpus(4, "h100");
    c->layout.data = 8;
    c->resources.backend = (char *)"cuda";
    plan_case_refused(c, "resources.devices: 8 wanted, the cluster has 4; parallel.data: 4 fits");
}

/* A launcher starts processes on one host: what needs two can be planned and not started. */
static void a_gang_of_gpus_lies_on_one_node(void **state)
{
    (void)state;
    static const struct spec_unbuilt none = {0};
    plan_case_cluster(c, 2, 4, 8, 0);
    be_gpus(8, "h100");
    c->layout.data = 8;
    plan_case_refused(c,
                      "resources.devices: 8 GPUs wanted, no node of the cluster has more than 4: "
                      "a gang on more than one host is not built yet; parallel.data: 4 fits");
    c->input.unbuilt = &none;
    Plan *p = plan_case_build(c);
    struct error err = {0};
    assert_int_equal(p->n_unbuilt, 1);
    assert_int_equal(plan_check_built(p, &err), -1);
    plan__free_unpacked(p, NULL);
}

/* Four are free, two on each node: it waits. One that has a place gets it on one node. */
static void a_gang_of_gpus_waits_for_a_node_of_its_own(void **state)
{
    (void)state;
    plan_case_cluster(c, 2, 4, 8, 0);
    be_gpus(8, "h100");
    c->layout.data = 4;
    for (int i = 0; i < 8; i++) {
        c->devices[i].has_job_id = i % 4 < 2;
        c->devices[i].job_id = i % 4 < 2 ? 7 : 0;
    }
    plan_case_refused(c, "4 of them are free, but fragmented: needs 4 devices on one node, has at "
                         "most 2 on one");
    c->devices[4].job_id = c->devices[5].job_id = 0;
    Plan *p = plan_case_build(c);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(p->placement[i]->node, "node1");
    }
    plan__free_unpacked(p, NULL);
}

/* Enough GPUs, but on two nodes: where CPU devices are enough the job needn't say so. */
static void gpus_of_two_nodes_are_not_enough_for_auto(void **state)
{
    (void)state;
    plan_case_cluster(c, 2, 6, 8, 0);
    for (int i = 0; i < 12; i++) {
        c->devices[i].type = (char *)(i % 6 < 2 ? "h100" : "cpu");
    }
    c->layout.data = 4;
    chosen("cpu", "fp32");
    c->layout.data = 2;
    chosen("cuda", "bf16");
}

/* Of a server only its own host's GPUs are reached, whatever the cluster has. */
static void the_servers_own_gpus_are_used(void **state)
{
    (void)state;
    static const struct spec_unbuilt none = {0};
    char *nodes[] = {(char *)"node0"};
    plan_case_cluster(c, 2, 4, 8, 0);
    be_gpus(8, "h100");
    c->input.gpu_node = "node1";
    Plan *p = plan_case_build(c);
    assert_string_equal(p->placement[0]->node, "node1");
    plan__free_unpacked(p, NULL);
    c->resources.nodes = nodes;
    c->resources.n_nodes = 1;
    c->resources.backend = (char *)"cuda";
    plan_case_refused(c, "resources.nodes: GPUs of other hosts than node1 are not reached yet");
    c->input.unbuilt = &none; /* to look at */
    plan__free_unpacked(plan_case_build(c), NULL);
    c->input.unbuilt = NULL;
    c->resources.n_nodes = 0;
    c->layout.data = 8;
    plan_case_refused(c, "resources.devices: 8 wanted, node node1 has 4");
    /* Not enough of them: then the CPU devices, where there are. */
    c->resources.backend = (char *)"auto";
    c->layout.data = 4;
    for (int i = 4; i < 6; i++) {
        c->devices[i].type = (char *)"cpu";
    }
    be_gpus(4, "cpu");
    chosen("cpu", "fp32");
}

/* A file may promise GPUs that the host hasn't: who leaves the backend open gets CPU devices, where
 * there are, and is told. */
static void gpus_that_are_gone_are_none_for_auto(void **state)
{
    (void)state;
    plan_case_cluster(c, 2, 4, 8, 0);
    be_gpus(4, "h100");
    c->input.gpu_node = "node0";
    c->layout.data = 4;
    c->input.num_gpus_gone = 1;
    Plan *p = plan_case_build(c);
    assert_string_equal(p->backend, "cpu");
    assert_string_equal(p->notes[0], "backend cpu: 1 of the 4 GPUs of node node0 are not there; "
                                     "resources.backend: cuda waits for them");
    plan__free_unpacked(p, NULL);
    /* Nobody is told to wait for GPUs that don't take the job. */
    c->devices[1].mem_bytes = 1 << 20;
    p = plan_case_build(c);
    assert_string_equal(p->backend, "cpu");
    assert_string_equal(p->notes[0], "backend cpu: 1 of the 4 GPUs of node node0 are not there");
    plan__free_unpacked(p, NULL);
    c->devices[1].mem_bytes = c->devices[0].mem_bytes;
    c->layout.data = 2; /* three are left */
    chosen("cuda", "bf16");
    c->input.num_gpus_gone = 4;
    chosen("cpu", "fp32");
    c->resources.type = (char *)"h100";
    chosen("cuda", "bf16");
    c->resources.type = (char *)"any";
    be_gpus(8, "h100"); /* no CPU devices: it waits */
    chosen("cuda", "bf16");
}

/* CPU devices that don't take the job, for their memory or their domains, are no way out: it waits
 * for the GPUs. One that fits nowhere hears of the devices that it would get now. */
static void gpus_that_are_gone_are_waited_for_where_cpus_do_not_do(void **state)
{
    (void)state;
    plan_case_cluster(c, 2, 4, 8, 0);
    be_gpus(4, "h100");
    c->input.gpu_node = "node0";
    c->input.num_gpus_gone = 1;
    c->layout.data = 4;
    chosen("cpu", "fp32");
    c->layout.data = 1;
    c->layout.tensor = 4;
    chosen("cpu", "fp32");
    for (int i = 4; i < 8; i++) {
        c->devices[i].domain = (char *)(i < 6 ? "left" : "right");
    }
    chosen("cuda", "bf16");
    c->layout.data = 4;
    c->layout.tensor = 1;
    chosen("cpu", "fp32");
    for (int i = 4; i < 8; i++) {
        c->devices[i].mem_bytes = 1 << 20;
    }
    chosen("cuda", "bf16");
    for (int i = 0; i < 4; i++) {
        c->devices[i].mem_bytes = 1 << 20;
    }
    struct error now, whole;
    Plan *p;
    assert_int_equal(plan_build(&c->input, &p, &now), -1);
    c->input.num_gpus_gone = 0;
    assert_int_equal(plan_build(&c->input, &p, &whole), -1);
    assert_string_not_equal(now.text, whole.text);
    c->resources.type = (char *)"cpu";
    assert_int_equal(plan_build(&c->input, &p, &whole), -1);
    assert_string_equal(now.text, whole.text);
}

/* Linked with --wrap: each try makes a mesh. */
static int num_tries;
int __real_mesh_init(Mesh *m, const ParallelSpec *layout, struct error *err);
int __wrap_mesh_init(Mesh *m, const ParallelSpec *layout, struct error *err);

int __wrap_mesh_init(Mesh *m, const ParallelSpec *layout, struct error *err)
{
    num_tries++;
    return __real_mesh_init(m, layout, err);
}

static int tries_until_refused(void)
{
    num_tries = 0;
    plan_case_refused(c, "memory: ");
    return num_tries;
}

/* A second try is made only where GPUs that are gone decided the first: any other fails as before.
 */
static void a_refused_job_is_planned_again_only_where_missing_gpus_decided(void **state)
{
    (void)state;
    plan_case_cluster(c, 2, 4, 8, 1 << 20);
    be_gpus(4, "h100");
    c->input.gpu_node = "node0";
    c->input.num_gpus_gone = 1;
    c->layout.data = 4;
    assert_int_equal(tries_until_refused(), 2);
    c->layout.data = 2; /* three GPUs are left */
    assert_int_equal(tries_until_refused(), 1);
    c->layout.data = 4;
    c->resources.backend = (char *)"cuda";
    assert_int_equal(tries_until_refused(), 1);
    c->resources.backend = (char *)"cpu";
    assert_int_equal(tries_until_refused(), 1);
    c->resources.backend = (char *)"auto";
    c->resources.type = (char *)"h100";
    assert_int_equal(tries_until_refused(), 1);
}

static void given_devices_have_to_suit_the_backend(void **state)
{
    (void)state;
    RankPlacement places[2] = {RANK_PLACEMENT__INIT, RANK_PLACEMENT__INIT};
    const RankPlacement *list[] = {&places[0], &places[1]};
    places[0].node = places[1].node = (char *)"node0";
    places[1].device = 1;
    c->input.placement = list;
    c->resources.backend = (char *)"cuda";
    plan_case_refused(c, "placement: device 0 of node node0 is of type cpu, backend cuda runs on "
                         "GPUs");
    be_gpus(4, "h100");
    chosen("cuda", "bf16");
    c->resources.backend = (char *)"cpu";
    plan_case_refused(c, "is of type h100, backend cpu runs on type cpu");
    /* A job that says nothing gets what suits them, whatever else there is. */
    c->resources.backend = (char *)"auto";
    chosen("cuda", "bf16");
    plan_case_cluster(c, 2, 2, 8, 0);
    c->devices[2].type = c->devices[3].type = (char *)"h100";
    chosen("cpu", "fp32");
}

/* ---- what a rank is told ---- */

/* What ranks read of a plan was decided. */
static void a_received_plan_says_what_to_compute_with(void **state)
{
    (void)state;
    struct error err = {0};
    be_gpus(4, "h100");
    Plan *p = plan_case_build(c);
    JobSpec *spec = p->spec;
    assert_int_equal(spec_check(spec, &err), 0);
    assert_int_equal(plan_check_received(p, &err), 0);
    text_set(&spec->base, "training.precision", "auto", &err);
    assert_int_equal(plan_check_received(p, &err), -1);
    assert_string_equal(err.text, "plan: precision auto on backend cuda");
    text_set(&spec->base, "training.precision", "bf16", &err);
    p->backend[0] = 'x';
    assert_int_equal(plan_check_received(p, &err), -1);
    assert_string_equal(err.text, "plan: there is no backend \"xuda\"");
    plan__free_unpacked(p, NULL);
}

/* Nothing of a GPU lies in the shared segment, but what its processes say to each other. */
static void nothing_of_a_gpu_is_in_the_shared_segment(void **state)
{
    (void)state;
    plan_case_cluster(c, 1, 16, 16, 0);
    be_gpus(16, "h100");
    for (int i = 0; i < 4 * 3 * 4; i++) {
        int64_t data = (int64_t[]){1, 2, 4}[i / 4 % 3], tensor = (int64_t[]){1, 2, 2, 4}[i / 12];
        c->layout.data = data;
        c->layout.tensor = tensor;
        c->layout.sequence_parallel = i / 12 >= 2;
        c->layout.zero_stage = i % 4;
        c->layout.shard_size = data == 4 && i % 4 > 0 ? 2 : 0;
        c->training.global_batch_size = 4 * data;
        Plan *p = plan_case_build(c);
        const MemoryEstimate *m = p->memory;
        assert_int_equal(m->shared_bytes, data * tensor > 1 ? MEMORY_COMM_BYTES : 0);
        int64_t device = 0, host = 0;
        for (size_t k = 0; k < m->n_arenas; k++) {
            ArenaKind kind = m->arenas[k]->kind;
            assert_false(m->arenas[k]->shared);
            *(kind == ARENA_HOST || kind == ARENA_SNAPSHOT ? &host : &device) +=
                m->arenas[k]->bytes;
        }
        assert_int_equal(device, m->total_bytes - m->overhead_bytes);
        assert_int_equal(host, m->host_bytes);
        plan__free_unpacked(p, NULL);
    }
}

/* One GPU talks to nobody; NCCL's buffers are counted by the communicators that a layout has. */
static void communicators_are_counted_by_layout(void **state)
{
    (void)state;
    static const struct {
        int64_t data, tensor, zero_stage, shard_size;
        int32_t num;
    } cases[] = {
        {1, 1, 0, 0, 0}, /* nobody to talk to */
        {2, 1, 0, 0, 2}, /* data, all ranks */
        {1, 2, 0, 0, 2}, /* tensor, all ranks */
        {2, 1, 1, 0, 3}, /* shard, gather, all ranks */
        {4, 1, 3, 2, 4}, /* and replicas */
        {4, 4, 3, 2, 6}, /* and tensor, copies of KV heads */
    };
    plan_case_cluster(c, 1, 16, 16, 0);
    be_gpus(16, "h100");
    c->config.num_key_value_heads = 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ParallelSpec l = PARALLEL_SPEC__INIT;
        l.data = cases[i].data;
        l.tensor = cases[i].tensor;
        l.zero_stage = cases[i].zero_stage;
        l.shard_size = cases[i].shard_size;
        l.pipeline = l.context = l.expert = 1;
        int64_t nccl = cases[i].num * MEMORY_NCCL_BYTES;
        assert_int_equal(memory_num_communicators(&c->config, &l), cases[i].num);
        assert_int_equal(memory_gpu_fixed_bytes(&c->config, &l),
                         MEMORY_GPU_CONTEXT_BYTES + nccl +
                             (cases[i].num > 0 ? MEMORY_NCCL_ROOT_BYTES : 0));
        c->layout.data = l.data;
        c->layout.tensor = l.tensor;
        c->layout.zero_stage = l.zero_stage;
        c->layout.shard_size = l.shard_size;
        Plan *p = plan_case_build(c);
        assert_true(p->memory->overhead_bytes >= memory_gpu_fixed_bytes(&c->config, &l));
        assert_true(p->memory->overhead_bytes - memory_gpu_fixed_bytes(&c->config, &l) <
                    p->memory->total_bytes / 50 + 1);
        plan__free_unpacked(p, NULL);
    }
}

/* ---- clusters of files ---- */

static Plan *plan_on(const char *path)
{
    ClusterSpec *cluster;
    struct error err = {0};
    if (cluster_read(path, &cluster, &err) != 0) {
        fail_msg("%s", err.text);
    }
    c->input.cluster = cluster;
    Plan *p = plan_case_build(c);
    cluster_spec__free_unpacked(cluster, NULL);
    return p;
}

/* A plan on a cluster of GPUs can be started, not only looked at. */
static void plans_of_gpu_clusters_can_be_started(void **state)
{
    (void)state;
    static const char *const files[] = {"cluster-dgx.yaml", "cluster-nvl72.yaml",
                                        "cluster-mixed.yaml"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[512];
        struct error err = {0};
        snprintf(path, sizeof path, TANDEM_SOURCE_DIR "/examples/%s", files[i]);
        Plan *p = plan_on(path);
        assert_string_equal(p->backend, "cuda");
        assert_true(p->n_unbuilt == 0 && p->memory->n_arenas > 0);
        if (spec_check(p->spec, &err) != 0 || plan_check_received(p, &err) != 0) {
            fail_msg("%s: %s", files[i], err.text);
        }
        plan__free_unpacked(p, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(precision_follows_the_backend),
        T(the_backend_follows_the_devices),
        T(a_job_keeps_what_was_chosen),
        T(fp64_is_not_for_gpus),
        cmocka_unit_test(older_cards_are_known_by_name),
        T(bf16_is_refused_below_8_0),
        T(older_cards_are_passed_over),
        T(more_gpus_than_there_are_are_refused),
        T(a_gang_of_gpus_lies_on_one_node),
        T(a_gang_of_gpus_waits_for_a_node_of_its_own),
        T(communicators_are_counted_by_layout),
        T(gpus_that_are_gone_are_none_for_auto),
        T(gpus_that_are_gone_are_waited_for_where_cpus_do_not_do),
        T(a_refused_job_is_planned_again_only_where_missing_gpus_decided),
        T(gpus_of_two_nodes_are_not_enough_for_auto),
        T(the_servers_own_gpus_are_used),
        T(given_devices_have_to_suit_the_backend),
        T(a_received_plan_says_what_to_compute_with),
        T(nothing_of_a_gpu_is_in_the_shared_segment),
        T(plans_of_gpu_clusters_can_be_started),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
