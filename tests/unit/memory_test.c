/* The memory estimate against the closed forms and public figures. */
#include "plan/memory.h"

#include <string.h>

#include "model/family.h"
#include "plan_fixture.h"

/* All blocks and the head on one rank, of so many data ranks. */
static void estimate(MemoryEstimate *m, int64_t num_params, int64_t data)
{
    struct memory_load load = {.dense_numel = num_params,
                               .unit_numel = num_params,
                               .num_layers = c->config.num_hidden_layers,
                               .has_head = true};
    c->layout.data = data;
    memory_estimate(m, &c->config, &c->spec, &load);
}

/* fp32 training: weight, gradient, two moments of 4 bytes; sgd keeps no moments; fp64 twice. */
static void state_bytes_a_parameter_follow_precision_and_optimizer(void **state)
{
    (void)state;
    assert_int_equal(memory_state_size(&c->training), 16);
    c->optimizer.name = (char *)"sgd";
    assert_int_equal(memory_state_size(&c->training), 8);
    c->training.precision = (char *)"fp64";
    assert_int_equal(memory_state_size(&c->training), 16);
    c->optimizer.name = (char *)"adamw";
    assert_int_equal(memory_state_size(&c->training), 32);
}

/* Plain data parallel keeps the whole state on each rank: 128.5 GB for 8.03e9 parameters, 120 GB
 * for 7.5e9, 1,120 GB for 70e9; the number of ranks changes nothing. */
static void state_of_known_models_is_as_published(void **state)
{
    (void)state;
    static const struct {
        int64_t num_params;
        double gb;
    } cases[] = {{8030261248, 128.5}, {7500000000, 120}, {70000000000, 1120}};
    for (size_t i = 0; i < 3; i++) {
        MemoryEstimate one, many;
        estimate(&one, cases[i].num_params, 1);
        estimate(&many, cases[i].num_params, 64);
        int64_t sum = one.params_bytes + one.grads_bytes + one.optimizer_bytes;
        assert_int_equal(sum, 16 * cases[i].num_params);
        assert_true((double)sum / 1e9 > cases[i].gb - 0.05);
        assert_true((double)sum / 1e9 < cases[i].gb + 0.05);
        assert_int_equal(one.total_bytes, many.total_bytes);
    }
}

/* Activations = rows x saved elements of all blocks, and the head's two inputs; logits rows x V. */
static void activations_add_up_from_the_saved_tensors(void **state)
{
    (void)state;
    plan_case_config(c, 32, 4096, 14336, 32, 8, 128256);
    c->training.seq_len = 2048;
    c->training.micro_batch_size = 2;
    MemoryEstimate m;
    estimate(&m, 1000, 1);
    int64_t block = 4 * 4096 + 2 * 4096 + 2 * 1024 + 3 * 14336 + 32 + 2;
    int64_t rows = 2 * 2048;
    assert_int_equal(m.activations_bytes, rows * 4 * (32 * block + 2 * 4096 + 1));
    assert_int_equal(m.logits_bytes, rows * 4 * 128256);
    assert_int_equal(m.total_bytes, m.params_bytes + m.grads_bytes + m.optimizer_bytes +
                                        m.activations_bytes + m.logits_bytes + m.snapshot_bytes +
                                        m.backward_bytes + m.overhead_bytes);
    /* Three rows of the residual stream's gradients, and those of an MLP's hidden row. */
    assert_int_equal(m.backward_bytes, rows * 4 * (3 * 4096 + 14336));
    assert_int_equal(m.overhead_bytes, MEMORY_FIXED_BYTES);
}

/* Saving in the background needs a copy of what is saved; where only the last state is saved, or in
 * the foreground, there is none. */
static void background_saves_need_a_copy(void **state)
{
    (void)state;
    CheckpointSpec checkpoint = CHECKPOINT_SPEC__INIT;
    MemoryEstimate m;
    c->spec.checkpoint = &checkpoint;
    estimate(&m, 1000, 1);
    assert_int_equal(m.snapshot_bytes, 0);
    checkpoint.interval = (char *)"10";
    estimate(&m, 1000, 1);
    assert_int_equal(m.snapshot_bytes, 12 * 1000);
    c->optimizer.name = (char *)"sgd";
    estimate(&m, 1000, 1);
    assert_int_equal(m.snapshot_bytes, 4 * 1000);
    checkpoint.async = 0;
    estimate(&m, 1000, 1);
    assert_int_equal(m.snapshot_bytes, 0);
}

static int64_t shared_bytes(int64_t data, int64_t tensor, bool sequence)
{
    c->layout.data = data;
    c->layout.tensor = tensor;
    c->layout.sequence_parallel = sequence;
    c->training.global_batch_size = 2 * data;
    Plan *plan = plan_case_build(c);
    int64_t bytes = plan->memory->shared_bytes;
    if (data > 1) {
        assert_true(bytes >= plan->memory->grads_bytes);
    }
    plan__free_unpacked(plan, NULL);
    return bytes;
}

/* The shared segment holds what ranks sum: gradients over the data ranks, rows of the residual
 * stream (12 x 64, padded for 8 ranks to 16 x 64) and the loss's words over the tensor ranks, and
 * the communicator's small areas. One rank needs none. */
static void what_is_summed_lies_in_the_shared_segment(void **state)
{
    (void)state;
    plan_case_cluster(c, 1, 16, 16, 0);
    assert_int_equal(shared_bytes(1, 1, false), 0);
    assert_int_equal(shared_bytes(2, 1, false),
                     (109888 * 4 + 4095) / 4096 * 4096 + MEMORY_COMM_BYTES);
    int64_t words = 3 * 12 * 8 + 32; /* in pieces of 64 bytes */
    assert_int_equal(shared_bytes(1, 8, false),
                     (12 * 64 * 4 + words + 4095) / 4096 * 4096 + MEMORY_COMM_BYTES);
    assert_int_equal(shared_bytes(1, 8, true),
                     (16 * 64 * 4 + words + 4095) / 4096 * 4096 + MEMORY_COMM_BYTES);
}

static int64_t arena_bytes(const MemoryEstimate *m, ArenaKind first, ArenaKind last)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < m->n_arenas; i++) {
        ArenaKind kind = m->arenas[i]->kind;
        bytes += kind >= first && kind <= last ? m->arenas[i]->bytes : 0;
    }
    return bytes;
}

static void check_arenas(const MemoryEstimate *m)
{
    int64_t shared = 0;
    for (size_t i = 0; i < m->n_arenas; i++) {
        assert_true(m->arenas[i]->bytes > 0 && m->arenas[i]->bytes % 64 == 0);
        shared += m->arenas[i]->shared ? m->arenas[i]->bytes : 0;
    }
    assert_int_equal(arena_bytes(m, ARENA_WEIGHTS, ARENA_WEIGHTS), m->params_bytes);
    assert_int_equal(arena_bytes(m, ARENA_GRADS, ARENA_GRADS), m->grads_bytes);
    assert_int_equal(arena_bytes(m, ARENA_EXP_AVG, ARENA_EXP_AVG_SQ), m->optimizer_bytes);
    assert_int_equal(arena_bytes(m, ARENA_WEIGHT_SLOTS, ARENA_GRAD_SLOTS), m->gathered_bytes);
    assert_int_equal(arena_bytes(m, ARENA_ACTIVATIONS, ARENA_ACTIVATIONS), m->activations_bytes);
    assert_int_equal(arena_bytes(m, ARENA_BACKWARD, ARENA_BACKWARD), m->backward_bytes);
    assert_int_equal(arena_bytes(m, ARENA_LOGITS, ARENA_LOGITS), m->logits_bytes);
    assert_int_equal(arena_bytes(m, ARENA_SNAPSHOT, ARENA_SNAPSHOT), m->snapshot_bytes);
    assert_int_equal(arena_bytes(m, ARENA_WORKSPACE, ARENA_HOST), m->workspace_bytes);
    assert_true(arena_bytes(m, ARENA_SUMMED, ARENA_WORDS) <= m->exchange_bytes);
    /* The segment has room for them, and hardly more. */
    if (m->shared_bytes > 0) {
        int64_t room = m->shared_bytes - MEMORY_COMM_BYTES;
        assert_true(shared <= room && room - shared < 4096);
    }
}

/* What ranks set aside is the estimate once more, piece by piece, in every layout that can be run;
 * a plan that is only looked at has none. */
static void arenas_add_up_to_the_estimate(void **state)
{
    (void)state;
    CheckpointSpec checkpoint = CHECKPOINT_SPEC__INIT;
    checkpoint.interval = (char *)"10";
    c->spec.checkpoint = &checkpoint;
    plan_case_cluster(c, 1, 16, 16, 0);
    for (int i = 0; i < 4 * 3 * 4; i++) {
        int64_t data = (int64_t[]){1, 2, 4}[i / 4 % 3], tensor = (int64_t[]){1, 2, 2, 4}[i / 12];
        c->layout.data = data;
        c->layout.tensor = tensor;
        c->layout.sequence_parallel = i / 12 >= 2;
        c->layout.zero_stage = i % 4;
        c->layout.shard_size = data == 4 && i % 4 > 0 ? 2 : 0;
        c->training.global_batch_size = 4 * data;
        Plan *plan = plan_case_build(c);
        assert_true(plan->memory->n_arenas > 0);
        check_arenas(plan->memory);
        plan__free_unpacked(plan, NULL);
    }
    c->layout.zero_stage = 0;
    c->layout.shard_size = 0;
    c->layout.data = c->layout.tensor = 1;
    c->layout.sequence_parallel = 0;
    c->layout.pipeline = 2;
    static const struct spec_unbuilt none = {0};
    c->input.unbuilt = &none;
    Plan *plan = plan_case_build(c);
    assert_int_equal(plan->memory->n_arenas, 0);
    plan__free_unpacked(plan, NULL);
}

/* Sizes of a job file can be anything: the estimate stops at its cap, it never wraps. */
static void absurd_sizes_do_not_overflow(void **state)
{
    (void)state;
    c->training.seq_len = INT64_MAX;
    c->training.micro_batch_size = INT64_MAX;
    MemoryEstimate m;
    estimate(&m, (int64_t)1 << 50, 2);
    assert_int_equal(m.activations_bytes, MEMORY_MAX_BYTES);
    assert_true(m.total_bytes > MEMORY_MAX_BYTES);
}

/* A job that can't fit is refused before it starts, with what is missing and what lowers it. */
static void too_little_memory_is_refused_with_the_difference(void **state)
{
    (void)state;
    plan_case_config(c, 32, 4096, 14336, 32, 8, 128256);
    plan_case_cluster(c, 1, 4, 8, 80000000000);
    plan_case_refused(c, "memory: device 0 of node node0 needs");
    plan_case_refused(c, "and has 80.00:");
    plan_case_refused(c, "weights, gradients and optimizer 128.48");
    plan_case_refused(c, "training.optimizer.name: sgd");
    CheckpointSpec checkpoint = CHECKPOINT_SPEC__INIT;
    c->spec.checkpoint = &checkpoint;
    checkpoint.interval = (char *)"10";
    plan_case_refused(c, "checkpoint.async: false");
    checkpoint.has_async = 1;
    checkpoint.async = 0;
    c->optimizer.name = (char *)"sgd";
    Plan *p = plan_case_build(c);
    plan__free_unpacked(p, NULL);
}

/* Ranks of one host share its memory. */
static void ranks_of_a_node_share_its_memory(void **state)
{
    (void)state;
    plan_case_cluster(c, 1, 4, 8, 0);
    Plan *p = plan_case_build(c);
    int64_t total = p->memory->total_bytes;
    plan__free_unpacked(p, NULL);
    c->nodes[0].has_mem_bytes = 1;
    c->nodes[0].mem_bytes = 2 * total;
    p = plan_case_build(c);
    plan__free_unpacked(p, NULL);
    c->nodes[0].mem_bytes = 2 * total - 1;
    plan_case_refused(c, "node node0 with 2 ranks");
}

/* Devices of a type that plans are only looked at for. */
static void be_gpus(void)
{
    static char *marks[] = {(char *)"a mark"};
    static const struct spec_unbuilt unbuilt = {marks, 1};
    c->input.unbuilt = &unbuilt;
    c->resources.backend = (char *)"auto";
    c->resources.type = (char *)"any";
    for (size_t i = 0; i < c->cluster.n_nodes; i++) {
        for (size_t j = 0; j < c->nodes[i].n_devices; j++) {
            c->nodes[i].devices[j]->type = (char *)"h100";
        }
    }
}

/* The memory of a node is its host's: GPUs have their own, and of the host's what their state is
 * filled and saved through. */
static void gpus_want_their_hosts_memory_for_copies_alone(void **state)
{
    (void)state;
    plan_case_cluster(c, 1, 4, 8, 80000000000);
    be_gpus();
    Plan *p = plan_case_build(c);
    const MemoryEstimate *m = p->memory;
    assert_true(m->host_bytes > m->snapshot_bytes && m->snapshot_bytes == 12 * 109888);
    assert_int_equal(m->total_bytes, m->params_bytes + m->grads_bytes + m->optimizer_bytes +
                                         m->activations_bytes + m->logits_bytes +
                                         m->backward_bytes + m->exchange_bytes +
                                         m->workspace_bytes + m->overhead_bytes);
    c->nodes[0].has_mem_bytes = 1;
    c->nodes[0].mem_bytes = 2 * m->snapshot_bytes;
    plan__free_unpacked(p, NULL);
    plan__free_unpacked(plan_case_build(c), NULL);
    c->nodes[0].mem_bytes--;
    plan_case_refused(c, "memory: node node0 has 0.00 GB, the copies of its 2 ranks' state");
}

static void refused_without(const char *part, const char *other)
{
    struct error err = {0};
    Plan *p;
    assert_int_equal(plan_build(&c->input, &p, &err), -1);
    assert_non_null(strstr(err.text, part));
    assert_null(strstr(err.text, other));
}

/* A job that is to be started is told of what can be. */
static void a_job_to_be_started_is_advised_what_is_built(void **state)
{
    (void)state;
    plan_case_config(c, 32, 4096, 14336, 32, 8, 128256);
    plan_case_cluster(c, 1, 8, 8, 2000000000);
    plan_case_refused(c, "; parallel.zero_stage, more tensor ranks, a smaller model or "
                         "training.optimizer.name: sgd lower it");
    c->layout.zero_stage = 2;
    c->layout.tensor = 2;
    refused_without("; a higher parallel.zero_stage, more tensor ranks, a smaller", "pipeline");
}

/* What is said to lower it does: what the job uses already is not advised. */
static void what_is_used_already_is_not_advised(void **state)
{
    (void)state;
    plan_case_config(c, 32, 4096, 14336, 32, 8, 128256);
    plan_case_cluster(c, 1, 8, 8, 2000000000);
    be_gpus();
    c->layout.tensor = 2;
    plan_case_refused(c, "; parallel.zero_stage, more tensor ranks or more pipeline ranks lower");
    c->layout.zero_stage = 1;
    refused_without("; a higher parallel.zero_stage, more", "; parallel.zero_stage");
    c->layout.zero_stage = 3;
    refused_without("; more tensor ranks", "parallel.zero_stage");
    c->layout.shard_size = 1;
    refused_without("a larger parallel.shard_size, more tensor ranks", "parallel.zero_stage");
    c->training.seq_len = 65536;
    c->config.max_position_embeddings = 65536;
    c->data_facts.num_tokens = 1000000;
    refused_without("training.recompute.mode: full, parallel.sequence_parallel: true, more context",
                    "micro_batch_size lower");
    c->layout.sequence_parallel = 1;
    RecomputeSpec recompute = RECOMPUTE_SPEC__INIT;
    recompute.mode = (char *)"full";
    c->training.recompute = &recompute;
    refused_without("more context ranks or a smaller training.seq_len lower it",
                    "sequence_parallel");
    refused_without("more context ranks", "recompute");
}

/* Indexes need not be places in the list: each rank is held against its own device. */
static void devices_are_found_whatever_their_indexes(void **state)
{
    (void)state;
    const int num = 4096;
    plan_case_cluster(c, 1, num, num, 80000000000);
    be_gpus();
    for (int i = 0; i < num; i++) {
        c->nodes[0].devices[i]->index = num - i;
    }
    c->layout.data = num;
    c->training.global_batch_size = num;
    c->training.micro_batch_size = 1;
    Plan *p = plan_case_build(c);
    assert_int_equal(p->n_placement, num);
    plan__free_unpacked(p, NULL);
    c->nodes[0].devices[7]->mem_bytes = 1000;
    plan_case_refused(c, "memory: device 4089 of node node0 needs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(state_bytes_a_parameter_follow_precision_and_optimizer),
        T(state_of_known_models_is_as_published),
        T(activations_add_up_from_the_saved_tensors),
        T(background_saves_need_a_copy),
        T(what_is_summed_lies_in_the_shared_segment),
        T(arenas_add_up_to_the_estimate),
        T(absurd_sizes_do_not_overflow),
        T(too_little_memory_is_refused_with_the_difference),
        T(ranks_of_a_node_share_its_memory),
        T(gpus_want_their_hosts_memory_for_copies_alone),
        T(a_job_to_be_started_is_advised_what_is_built),
        T(what_is_used_already_is_not_advised),
        T(devices_are_found_whatever_their_indexes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
