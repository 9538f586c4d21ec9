/* What ranks take against what the plan said: twenty layouts of four families, ranks as threads,
 * models whose state is megabytes. The table shows each part, planned and measured, in kB. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/fs.h"
#include "gang.h"
#include "plan/plan.h"
#include "runtime/parallel/arenas.h"
#include "tests/effort.h"

/* Planned and measured, without program and libraries. */
#define TOLERANCE 0.05
/* Of one part: as much, or this. */
#define PART_BYTES 16384
#define LEN_MAX 256

static char *dir;
static const struct golden sizes = {.seq_len = 64, .batch = 8};

struct truth_case {
    const char *family;
    int64_t data, tensor, zero_stage, shard_size;
    bool sequence;
    int64_t micro, micro_batches, seq_len; /* 0 = 1, 1, 64 */
    const char *backend, *precision;       /* cpu, fp32 */
    const char *optimizer;                 /* adamw */
    const char *checkpoint;                /* none */
    bool packed;
    int32_t threads; /* 1 */
};

static const char sgd[] = "name: sgd, lr: 0.01";
static const char async_saves[] = "interval: 1, async: true, export_at_end: false";

#define BF16(...)                                                                                  \
    {                                                                                              \
        .backend = "ref", .precision = "bf16", .seq_len = 8, __VA_ARGS__                           \
    }

static const struct truth_case cases[] = {
    {.family = "llama", .data = 1},
    {.family = "llama", .data = 1, .micro = 4, .seq_len = 128, .threads = 3},
    {.family = "llama", .data = 1, .checkpoint = async_saves},
    {.family = "llama", .data = 2, .optimizer = sgd},
    {.family = "llama", .data = 2, .zero_stage = 1, .micro_batches = 2},
    {.family = "llama", .data = 2, .zero_stage = 2, .checkpoint = async_saves},
    {.family = "llama", .data = 4, .zero_stage = 3, .shard_size = 2, .micro_batches = 2},
    {.family = "llama", .data = 1, .tensor = 2, .micro = 2, .seq_len = 128},
    {.family = "llama", .data = 1, .tensor = 2, .sequence = true, .micro = 2, .seq_len = 127},
    {.family = "llama", .data = 2, .tensor = 4, .zero_stage = 3, .sequence = true},
    {.family = "qwen2", .data = 1, .micro = 2, .packed = true},
    {.family = "qwen2", .data = 2, .zero_stage = 2, .optimizer = sgd, .checkpoint = async_saves},
    {.family = "qwen2", .data = 2, .tensor = 2, .zero_stage = 1},
    {.family = "qwen3", .data = 1, .micro = 2, .seq_len = 128, .threads = 2},
    {.family = "qwen3", .data = 2, .zero_stage = 3, .packed = true},
    {.family = "qwen3", .data = 1, .tensor = 4, .sequence = true, .micro = 2},
    {.family = "gpt2", .data = 1, .micro = 2, .seq_len = 128},
    {.family = "gpt2", .data = 2, .zero_stage = 1, .checkpoint = async_saves},
    {.family = "gpt2", .data = 2, .tensor = 2, .zero_stage = 3, .sequence = true, .micro = 2},
    {.family = "gpt2", .data = 1, .backend = "ref", .precision = "fp64", .seq_len = 8},
    {.family = "llama",
     .data = 2,
     .zero_stage = 3,
     .backend = "ref",
     .precision = "fp64",
     .seq_len = 8},
    BF16(.family = "llama", .data = 1, .checkpoint = async_saves),
    BF16(.family = "gpt2", .data = 2, .micro_batches = 2),
    BF16(.family = "qwen3", .data = 2, .zero_stage = 1, .tensor = 2, .sequence = true),
    BF16(.family = "llama", .data = 2, .zero_stage = 2, .optimizer = sgd),
    BF16(.family = "gpt2", .data = 4, .zero_stage = 3, .shard_size = 2, .checkpoint = async_saves),
    BF16(.family = "llama", .data = 2, .tensor = 4, .zero_stage = 3, .sequence = true),
    {.family = "llama", .data = 1, .precision = "bf16", .seq_len = 128, .threads = 3},
    {.family = "qwen3", .data = 2, .zero_stage = 2, .micro = 2, .precision = "bf16"},
};
#define NUM_CASES ((int)(sizeof(cases) / sizeof(*cases)))

/* ---- files ------------------------------------------------------------------------------------
 */

static const char *config_of(const char *family)
{
    static char path[256];
    struct buf b = {0};
    snprintf(path, sizeof(path), "%s/%s.json", dir, family);
    if (strcmp(family, "gpt2") == 0)
        buf_puts(&b, "{\"model_type\": \"gpt2\", \"n_embd\": 256, \"n_layer\": 3, \"n_head\": 8,"
                     " \"vocab_size\": 1031, \"n_positions\": 256,"
                     " \"activation_function\": \"gelu_new\"}");
    else
        buf_printf(&b,
                   "{\"model_type\": \"%s\", \"hidden_size\": 256, \"intermediate_size\": 768,"
                   " \"num_hidden_layers\": 3, \"num_attention_heads\": 8,"
                   " \"num_key_value_heads\": 2, \"head_dim\": 32, \"vocab_size\": 1031,"
                   " \"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-5,"
                   " \"rope_theta\": 10000.0, \"tie_word_embeddings\": %s}",
                   family, strcmp(family, "qwen3") == 0 ? "true" : "false");
    assert_int_equal(fs_write_atomic(path, b.data, b.len, 0600, NULL), 0);
    buf_free(&b);
    return path;
}

static void put_numbers(struct buf *b, const char *key, int64_t len, int64_t first, int64_t most)
{
    buf_printf(b, "\"%s\": [", key);
    for (int64_t i = 0; i < len; i++)
        buf_printf(b, "%s%d", i ? ", " : "", (int)((first + 7 * i) % most));
    buf_puts(b, "]");
}

static void write_data(void)
{
    char path[256];
    struct buf rows = {0};
    uint16_t *tokens = malloc(40000 * sizeof(*tokens));
    assert_non_null(tokens);
    for (int i = 0; i < 40000; i++)
        tokens[i] = (uint16_t)((i * 7919) % 1031);
    snprintf(path, sizeof(path), "%s/tokens.bin", dir);
    assert_int_equal(fs_write_atomic(path, tokens, 40000 * sizeof(*tokens), 0600, NULL), 0);
    free(tokens);
    for (int i = 0; i < 64; i++) {
        buf_puts(&rows, "{");
        put_numbers(&rows, "input_ids", 60, i, 1031);
        buf_puts(&rows, ", ");
        put_numbers(&rows, "labels", 60, i + 7, 1031);
        buf_puts(&rows, "}\n");
    }
    snprintf(path, sizeof(path), "%s/rows.jsonl", dir);
    assert_int_equal(fs_write_atomic(path, rows.data, rows.len, 0600, NULL), 0);
    buf_free(&rows);
}

static int set_up(void **state)
{
    (void)state;
    gang_quiet();
    dir = gang_make_dir();
    write_data();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gang_remove_dir(dir);
    return 0;
}

/* ---- a run ------------------------------------------------------------------------------------
 */

#define STEPS_MAX 8

struct truth {
    Plan *plan;
    struct gang gang;
    pthread_mutex_t lock;
    /* Of the rank that uses most. */
    MemoryUse use;
    struct arena_use uses[ARENAS_MAX];
    int num_uses;
    /* Of rank 0, behind each step. */
    int64_t used[STEPS_MAX];
    int64_t heap[STEPS_MAX];
    int64_t settled;              /* the step by which all is taken */
    long long largest[STEPS_MAX]; /* piece of the heap since then */
};

static atomic_llong largest_piece; /* of the heap, since it was last set to 0 */

static void on_memory(void *arg, int32_t rank, int64_t step, const struct arenas *arenas,
                      const MemoryUse *use)
{
    struct truth *t = arg;
    pthread_mutex_lock(&t->lock);
    if (rank == 0 && step < STEPS_MAX) {
        struct mallinfo2 heap = mallinfo2();
        t->used[step] = use->used_bytes;
        t->heap[step] = (int64_t)(heap.uordblks + heap.hblkhd);
        t->largest[step] = atomic_load(&largest_piece);
        if (step <= t->settled)
            atomic_store(&largest_piece, 0);
    }
    if (use->used_bytes > t->use.used_bytes) {
        t->use = *use;
        t->num_uses = arenas_uses(arenas, t->uses);
    }
    pthread_mutex_unlock(&t->lock);
}

static Plan *plan_of(const struct truth_case *c, int64_t steps)
{
    char words[16];
    struct golden golden = sizes;
    int64_t micro = c->micro ? c->micro : 1, num = c->micro_batches ? c->micro_batches : 1;
    char data[256];
    golden.seq_len = c->seq_len ? c->seq_len : sizes.seq_len;
    golden.batch = micro * num * c->data;
    snprintf(words, sizeof(words), "%lld", (long long)steps);
    snprintf(data, sizeof(data), "%s/%s", dir, c->packed ? "rows.jsonl" : "tokens.bin");
    struct gang_spec spec = {
        .golden = &golden,
        .data = c->data,
        .tensor = c->tensor,
        .zero_stage = c->zero_stage,
        .shard_size = c->shard_size,
        .sequence_parallel = c->sequence,
        .micro = micro,
        .steps = steps,
        .backend = c->backend ? c->backend : "cpu",
        .precision = c->precision ? c->precision : "fp32",
        .optimizer = c->optimizer,
        .checkpoint = c->checkpoint,
        .config = config_of(c->family),
        .data_path = data,
        .format = c->packed ? "tokenized-jsonl" : NULL,
        .bucket_mb = "2",
    };
    Plan *plan = gang_plan(&spec);
    plan->threads_per_rank = c->threads ? c->threads : 1;
    assert_int_equal(plan_set_memory(plan, NULL), 0);
    return plan;
}

/* By the second step all is taken: the communicators have used both of their small pieces. Where
 * compute is a queue the second may still run when all of it is enqueued, but not when all of the
 * third is. */
static void run(struct truth *t, const struct truth_case *c, int64_t steps, bool queued)
{
    struct rank_observer observer = {.arg = t, .memory = on_memory};
    queued = queued || effort_is_set("TANDEM_QUEUED");
    *t = (struct truth){.plan = plan_of(c, steps), .settled = queued ? 3 : 2};
    t->gang.queued_compute = queued;
    pthread_mutex_init(&t->lock, NULL);
    t->gang.plan = t->plan;
    t->gang.observer = &observer;
    gang_run_well(&t->gang);
    pthread_mutex_destroy(&t->lock);
}

static void done(struct truth *t)
{
    plan__free_unpacked(t->plan, NULL);
}

/* ---- judging ----------------------------------------------------------------------------------
 */

static void words_of(const struct truth_case *c, char *out, size_t size)
{
    snprintf(out, size, "%s%s%s d%d t%d z%d%s%s%s%s%s m%d", c->family, c->precision ? " " : "",
             c->precision ? c->precision : "", (int)c->data, c->tensor ? (int)c->tensor : 1,
             (int)c->zero_stage, c->shard_size ? " hybrid" : "", c->sequence ? " sp" : "",
             c->packed ? " packed" : "", c->optimizer == sgd ? " sgd" : "",
             c->checkpoint ? " async" : "", c->micro_batches ? (int)c->micro_batches : 1);
}

static bool is_near(int64_t planned, int64_t used, int64_t slack)
{
    int64_t most = (int64_t)((double)planned * TOLERANCE);
    most = most > slack ? most : slack;
    return used <= planned && planned - used <= most;
}

/* Prints it; how many lines are wrong. */
static int judge(const struct truth *t, const char *words)
{
    const MemoryEstimate *m = t->plan->memory;
    int64_t planned = m->total_bytes - m->overhead_bytes, used = t->use.used_bytes;
    int64_t arenas_planned = 0, arenas_used = 0;
    int num_wrong = 0;
    printf("%s: planned %lld, measured %lld kB: %.2f %%\n", words, (long long)(planned / 1000),
           (long long)(used / 1000), 100.0 * (double)(planned - used) / (double)planned);
    for (int i = 0; i < t->num_uses; i++) {
        const struct arena_use *u = &t->uses[i];
        bool near = is_near(u->planned, u->used, PART_BYTES);
        printf("    %-24s %9lld %9lld%s%s\n", arenas_kind_word(u->kind),
               (long long)(u->planned / 1000), (long long)(u->used / 1000),
               u->shared ? " shared" : "", near ? "" : "  <- WRONG");
        num_wrong += !near;
        arenas_planned += u->planned;
        arenas_used += u->used;
    }
    printf("    %-24s %9lld %9lld\n", "staging, and all else",
           (long long)((planned - arenas_planned) / 1000),
           (long long)((used - arenas_used) / 1000));
    if (!is_near(planned, used, 0)) {
        printf("    <- WRONG\n");
        num_wrong++;
    }
    fflush(stdout);
    return num_wrong;
}

/* ---- the tests --------------------------------------------------------------------------------
 */

/* High-water marks lie within 5 % below the estimate, part by part; never above it. */
static void ranks_take_what_the_plan_said(void **state)
{
    (void)state;
    static struct truth t;
    int num_wrong = 0, stride = effort(1, 1, 7);
    for (int i = 0; i < NUM_CASES; i += stride) {
        char words[128];
        run(&t, &cases[i], 2, false);
        words_of(&cases[i], words, sizeof(words));
        num_wrong += judge(&t, words);
        done(&t);
    }
    assert_int_equal(num_wrong, 0);
}

/* Wrapped by the linker: the heap of all ranks, their streams and the test. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t num, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t num, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);

static void note_piece(size_t bytes)
{
    long long seen = atomic_load(&largest_piece);
    while ((long long)bytes > seen &&
           !atomic_compare_exchange_weak(&largest_piece, &seen, (long long)bytes)) {
    }
}

void *__wrap_malloc(size_t bytes)
{
    note_piece(bytes);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t num, size_t bytes)
{
    note_piece(num * bytes);
    return __real_calloc(num, bytes);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    note_piece(bytes);
    return __real_aligned_alloc(align, bytes);
}

/* The largest piece that steps may take of the heap: reports, file names. */
#define STEP_PIECE_MAX 4096

static void check_steps(const struct truth_case *c, bool queued)
{
    static struct truth t;
    run(&t, c, 6, queued);
    int64_t from = t.settled;
    printf("steps %d-5%s: largest piece of the heap %lld bytes, heap %+lld bytes\n", (int)from + 1,
           queued ? ", queued" : "", t.largest[5], (long long)(t.heap[5] - t.heap[from]));
    for (int64_t step = from + 1; step <= 5; step++)
        assert_int_equal(t.used[step], t.used[from]);
    assert_true(t.largest[5] <= STEP_PIECE_MAX);
    done(&t);
}

/* Once all is taken nothing is allocated: not of the device, not of the segment; of the heap small
 * pieces that are given back. The sixth step's checkpoint is not looked at. */
static void steps_allocate_nothing(void **state)
{
    (void)state;
    static const struct truth_case list[] = {
        {.family = "llama", .data = 1, .micro_batches = 2},
        {.family = "gpt2", .data = 2, .tensor = 2, .zero_stage = 3, .sequence = true},
        {.family = "qwen3", .data = 2, .zero_stage = 1, .packed = true},
    };
    void *volatile piece = malloc(2 * STEP_PIECE_MAX);
    assert_true(atomic_load(&largest_piece) >= 2 * STEP_PIECE_MAX); /* pieces are seen at all */
    free(piece);
    for (size_t i = 0; i < sizeof(list) / sizeof(*list); i++) {
        check_steps(&list[i], false);
        check_steps(&list[i], true);
    }
}

static Arena *arena_of(Plan *plan, ArenaKind kind)
{
    for (size_t i = 0; i < plan->memory->n_arenas; i++)
        if (plan->memory->arenas[i]->kind == kind)
            return plan->memory->arenas[i];
    fail_msg("there is no memory for %s", arenas_kind_word(kind));
    return NULL;
}

/* Where the plan has less than a part wants, ranks fail before the first step, saying which part,
 * how much it wants and what was planned. */
static void a_part_that_wants_more_than_planned_is_refused_by_name(void **state)
{
    (void)state;
    static const ArenaKind kinds[] = {ARENA_WEIGHTS, ARENA_GRAD_SLOTS, ARENA_ACTIVATIONS,
                                      ARENA_WORKSPACE, ARENA_BATCH};
    const struct truth_case c = {.family = "llama", .data = 2, .zero_stage = 3};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        static struct gang gang;
        char planned[64];
        gang = (struct gang){.plan = plan_of(&c, 2)};
        Arena *arena = arena_of((Plan *)(uintptr_t)gang.plan, kinds[i]);
        arena->bytes /= 2;
        snprintf(planned, sizeof(planned), "the plan has %lld", (long long)arena->bytes);
        gang_run(&gang);
        assert_int_equal(gang.num_steps, 0);
        assert_int_equal(gang.ranks[0].rc, -1);
        assert_non_null(strstr(gang.ranks[0].err.text, "are wanted beside"));
        assert_non_null(strstr(gang.ranks[0].err.text, arenas_kind_word(kinds[i])));
        assert_non_null(strstr(gang.ranks[0].err.text, planned));
        assert_false(gang.ranks[0].retryable);
        plan__free_unpacked((Plan *)(uintptr_t)gang.plan, NULL);
    }
}

/* A plan that counts one buffer too many is found out: the measure is not the plan's own number. */
static void an_estimate_that_is_too_large_is_found_out(void **state)
{
    (void)state;
    const struct truth_case c = {.family = "llama", .data = 1};
    static struct truth t;
    struct rank_observer observer = {.arg = &t, .memory = on_memory};
    t = (struct truth){.plan = plan_of(&c, 2)};
    pthread_mutex_init(&t.lock, NULL);
    int64_t more = t.plan->memory->params_bytes / 2;
    arena_of(t.plan, ARENA_GRADS)->bytes += more;
    t.plan->memory->total_bytes += more;
    t.gang.plan = t.plan;
    t.gang.observer = &observer;
    gang_run_well(&t.gang);
    assert_int_equal(judge(&t, "with a buffer too many"), 2);
    done(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_take_what_the_plan_said),
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(a_part_that_wants_more_than_planned_is_refused_by_name),
        cmocka_unit_test(an_estimate_that_is_too_large_is_found_out),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
