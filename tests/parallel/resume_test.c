/* Stops and resumes of gangs on many ranks (ranks are threads): with the state shared out, under
 * the same layout and under others, and what is exported at the end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fs.h"
#include "gang.h"
#include "plan/params.h"
#include "runtime/ckpt/ckpt.h"
#include "tests/effort.h"

#define STEPS 5
#define STOP 2 /* the first checkpoint */

/* Six heads of which three have keys, a vocabulary that nothing divides, twelve samples a step. */
static const struct golden odd = {"llama-tiny", 12, 16};
static const char odd_config[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 24,"
    " \"intermediate_size\": 36, \"num_hidden_layers\": 2, \"num_attention_heads\": 6,"
    " \"num_key_value_heads\": 3, \"head_dim\": 4, \"vocab_size\": 331, \"rms_norm_eps\": 1e-6,"
    " \"max_position_embeddings\": 64, \"rope_theta\": 10000.0, \"initializer_range\": 0.05,"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": true}";
static char config_path[64];
static const char *precision; /* of a test's runs; set for each */

/* What is written is read again by this process: nothing to wait for. */
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    (void)fd;
    return 0;
}

struct where {
    const struct golden *golden;
    int64_t data, tensor, zero_stage, shard_size;
    bool sequence;
};

/* Neighbours in the list resume from each other, so each model's stand together. */
static const struct where layouts[] = {
    {&odd, 1, 1, 0, 0, false},          {&odd, 2, 3, 1, 0, true},
    {&odd, 2, 3, 3, 0, true},           {&odd, 6, 1, 2, 3, false},
    {&odd, 4, 1, 3, 2, false},          {&odd, 1, 6, 0, 0, true},
    {&odd, 3, 1, 3, 0, false},          {&golden_tiny, 4, 1, 3, 0, false},
    {&golden_tiny, 1, 8, 0, 0, true},   {&golden_tiny, 2, 4, 3, 0, false},
    {&golden_tiny, 4, 2, 2, 2, true},   {&golden_tied, 2, 4, 1, 0, true},
    {&golden_tied, 2, 1, 3, 0, false},  {&golden_tied, 1, 2, 0, 0, false},
    {&golden_gpt2, 2, 2, 3, 0, true},   {&golden_gpt2, 4, 1, 1, 0, false},
    {&golden_gpt2, 1, 4, 0, 0, false},  {&golden_qwen2, 2, 2, 3, 0, true},
    {&golden_qwen2, 2, 1, 0, 0, false}, {&golden_qwen3, 1, 4, 0, 0, true},
    {&golden_qwen3, 2, 2, 3, 0, false}};
#define NUM_LAYOUTS (sizeof layouts / sizeof layouts[0])

static struct gang_spec spec_of(const struct where *w)
{
    return (struct gang_spec){
        .golden = w->golden,
        .data = w->data,
        .tensor = w->tensor,
        .zero_stage = w->zero_stage,
        .shard_size = w->shard_size,
        .sequence_parallel = w->sequence,
        .precision = precision,
        .steps = STEPS,
        .config = w->golden == &odd ? config_path : NULL,
        .checkpoint = "interval: 2, async: true, export_at_end: false",
        .bucket_mb = "0.01",
    };
}

static bool is_bf16(void)
{
    return strcmp(precision, "bf16") == 0;
}

static const char *text_of(const struct where *w)
{
    static char text[2][160];
    static int turn;
    turn = !turn;
    snprintf(text[turn], sizeof text[turn], "%s %s d%lld t%lld zero %lld shard_size %lld%s",
             precision, w->golden == &odd ? "odd" : w->golden->name, (long long)w->data,
             (long long)w->tensor, (long long)w->zero_stage, (long long)w->shard_size,
             w->sequence ? " sp" : "");
    return text[turn];
}

/* ---- what a checkpoint holds ------------------------------------------------------------------
 */

/* Weights and moments of the whole model, as one rank lays them out. */
struct whole {
    struct param_table table;
    double *buffers; /* weights, exp_avg, exp_avg_sq */
};

static struct ckpt_state state_of(const struct whole *w)
{
    size_t n = (size_t)w->table.flat_numel;
    return (struct ckpt_state){.table = &w->table,
                               .dtype = DTYPE_F64,
                               .weights = {.data = w->buffers},
                               .exp_avg = {.data = w->buffers + n},
                               .exp_avg_sq = {.data = w->buffers + 2 * n}};
}

static void whole_new(struct whole *w, const struct where *like)
{
    struct where one = {.golden = like->golden, .data = 1, .tensor = 1};
    struct gang_spec spec = spec_of(&one);
    Plan *plan = gang_plan(&spec);
    struct error err = {0};
    if (params_expand(plan, 0, &w->table, &err) != 0)
        fail_msg("%s", err.text);
    w->buffers = calloc(3 * (size_t)w->table.flat_numel, sizeof(*w->buffers));
    assert_non_null(w->buffers);
    plan__free_unpacked(plan, NULL);
}

static void whole_free(struct whole *w)
{
    params_free(&w->table);
    free(w->buffers);
}

static void whole_load(struct whole *w, const struct where *like, const char *job_dir,
                       const char *ckpt, int64_t step)
{
    char dir[600];
    struct ckpt_meta meta;
    struct error err = {0};
    whole_new(w, like);
    struct ckpt_state state = state_of(w);
    fs_join(dir, sizeof dir, job_dir, ckpt);
    if (ckpt_load(dir, &state, &meta, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(meta.step, step);
}

/* Each tensor of each kind by itself; 0: bit by bit. */
static void check_equal(const struct whole *a, const struct whole *b, double bound,
                        const char *text)
{
    static const char *const kinds[] = {"", ".exp_avg", ".exp_avg_sq"};
    for (int k = 0; k < 3; k++) {
        for (int32_t i = 0; i < a->table.num_params; i++) {
            const struct param *p = &a->table.params[i];
            const double *x = a->buffers + k * a->table.flat_numel + p->offset;
            const double *y = b->buffers + k * b->table.flat_numel + p->offset;
            double off = 0.0, all = 0.0;
            for (int64_t e = 0; e < p->numel; e++) {
                off += (x[e] - y[e]) * (x[e] - y[e]);
                all += x[e] * x[e];
            }
            if (bound > 0.0 ? !(sqrt(off) <= bound * sqrt(all))
                            : memcmp(x, y, (size_t)p->numel * sizeof(*x)) != 0)
                fail_msg("%s: %s%s: off by %.2e", text, p->name, kinds[k], sqrt(off / all));
        }
    }
}

/* ---- stop and resume --------------------------------------------------------------------------
 */

struct run {
    struct gang gang;
    char *dir; /* the job's folder */
};

static void run_new(struct run *r, const struct where *w, const char *resume_dir)
{
    struct gang_spec spec = spec_of(w);
    *r = (struct run){.dir = gang_make_dir()};
    r->gang = (struct gang){.plan = gang_plan(&spec), .job_dir = r->dir, .resume_dir = resume_dir};
    gang_run_well(&r->gang);
}

static void run_free(struct run *r)
{
    plan__free_unpacked((Plan *)r->gang.plan, NULL);
    gang_remove_dir(r->dir);
}

static void load_last(struct whole *w, const struct where *like, const struct run *r)
{
    whole_load(w, like, r->dir, r->gang.checkpoints[r->gang.num_checkpoints - 1], STEPS);
}

/* The layout's own checkpoint; all ran without a stop and ended at want. */
static void check_resume_as_it_was(const struct where *a, const struct run *all,
                                   const struct whole *want, const char *resume)
{
    struct run same;
    struct whole got;
    run_new(&same, a, resume);
    assert_int_equal(same.gang.first_step, STOP + 1);
    for (int i = 0; i < STEPS - STOP; i++) {
        const StepMetrics *x = &all->gang.steps[STOP + i], *y = &same.gang.steps[i];
        if (x->loss != y->loss || x->grad_norm != y->grad_norm)
            fail_msg("%s: step %lld differs after the stop", text_of(a), (long long)x->step);
    }
    load_last(&got, a, &same);
    check_equal(want, &got, 0.0, text_of(a));
    whole_free(&got);
    run_free(&same);
}

/* TRAINING 5, faults 15, 16 and 27: resumed with a sharded optimizer, the run is key by key, bit by
 * bit the one that never stopped; resumed under another layout its next loss, and weights and
 * moments at the end, are those again, but for the order of sums; in bf16 for that and rounding,
 * which is for the losses to show. */
static void check_resume(const struct where *a, const struct where *b)
{
    struct run all, other;
    struct whole want, got;
    char resume[600], text[330];
    run_new(&all, a, NULL);
    assert_int_equal(all.gang.checkpoint_steps[0], STOP);
    fs_join(resume, sizeof resume, all.dir, all.gang.checkpoints[0]);
    load_last(&want, a, &all);
    check_resume_as_it_was(a, &all, &want, resume);

    snprintf(text, sizeof text, "%s -> %s", text_of(a), text_of(b));
    run_new(&other, b, resume);
    for (int i = 0; i < STEPS - STOP; i++) {
        const StepMetrics *x = &all.gang.steps[STOP + i], *y = &other.gang.steps[i];
        if (!(fabs(x->loss / y->loss - 1.0) < (is_bf16() ? 2e-3 : 1e-12)))
            fail_msg("%s: step %lld: loss %.17g, not %.17g", text, (long long)x->step, y->loss,
                     x->loss);
    }
    load_last(&got, a, &other);
    if (!is_bf16())
        check_equal(&want, &got, 1e-9, text);
    whole_free(&got);
    whole_free(&want);
    run_free(&other);
    run_free(&all);
}

static void a_resumed_run_equals_the_one_that_never_stopped(void **state)
{
    (void)state;
    /* Under sanitizers two of few ranks. */
    size_t stride = (size_t)effort(1, 1, 5);
    for (size_t i = (size_t)effort(0, 0, 12); i < NUM_LAYOUTS; i += stride) {
        size_t next = (i + 1) % NUM_LAYOUTS;
        if (layouts[next].golden != layouts[i].golden)
            for (next = 0; layouts[next].golden != layouts[i].golden; next++)
                continue;
        check_resume(&layouts[i], &layouts[next]);
    }
}

static void a_resumed_run_in_bf16_equals_the_one_that_never_stopped(void **state)
{
    (void)state;
    static const struct where list[] = {{&odd, 1, 1, 0, 0, false},
                                        {&odd, 2, 3, 1, 0, true},
                                        {&odd, 6, 1, 2, 3, false},
                                        {&odd, 2, 3, 3, 0, true},
                                        {&golden_gpt2, 2, 2, 3, 0, true}};
    precision = "bf16";
    for (size_t i = 0; i < (size_t)effort(4, 4, 1); i++)
        check_resume(&list[i], &list[(i + 1) % 4]);
    check_resume(&list[4], &list[4]);
}

/* ---- exports ----------------------------------------------------------------------------------
 */

/* What stands in the exported folder of a run on many ranks, in one rank. */
static void check_export(const struct where *w)
{
    struct gang_spec spec = spec_of(w);
    struct run r = {.dir = gang_make_dir()}, again = {.dir = gang_make_dir()};
    struct whole want, got;
    char out[600], resume[600], path[700];
    struct error err = {0};
    spec.checkpoint = "interval: 0, export_at_end: true";
    r.gang = (struct gang){.plan = gang_plan(&spec), .job_dir = r.dir};
    gang_run_well(&r.gang);
    assert_string_equal(r.gang.export_dir, "export");
    load_last(&want, w, &r);
    whole_new(&got, w);
    struct ckpt_state state = state_of(&got);
    fs_join(out, sizeof out, r.dir, "export");
    if (ckpt_load_hf(NULL, out, &state, &err) != 0)
        fail_msg("%s: %s", text_of(w), err.text);
    assert_memory_equal(want.buffers, got.buffers,
                        (size_t)want.table.flat_numel * sizeof(*want.buffers));
    /* An attempt that died between the last save and the export finds nothing left to train. */
    fs_join(resume, sizeof resume, r.dir, r.gang.checkpoints[0]);
    again.gang =
        (struct gang){.plan = gang_plan(&spec), .job_dir = again.dir, .resume_dir = resume};
    gang_run_well(&again.gang);
    assert_int_equal(again.gang.num_steps, 0);
    fs_join(path, sizeof path, again.dir, "export");
    if (ckpt_load_hf(NULL, path, &state, &err) != 0)
        fail_msg("%s: %s", text_of(w), err.text);
    assert_memory_equal(want.buffers, got.buffers,
                        (size_t)want.table.flat_numel * sizeof(*want.buffers));
    whole_free(&want);
    whole_free(&got);
    run_free(&again);
    run_free(&r);
}

/* Fault 32's other half: the export of V = 331 on several tensor ranks has 331 rows; it is there
 * whole though no rank ever had the whole model. */
static void an_export_of_many_ranks_loads_in_one_and_equals(void **state)
{
    (void)state;
    static const struct where list[] = {{&odd, 2, 6, 3, 0, true},
                                        {&golden_tiny, 2, 4, 3, 0, false},
                                        {&golden_tied, 2, 4, 2, 0, true},
                                        {&golden_gpt2, 2, 4, 3, 0, true},
                                        {&golden_qwen3, 2, 2, 3, 0, false}};
    /* Under sanitizers the smallest alone. */
    for (size_t i = (size_t)effort(0, 0, 4); i < sizeof list / sizeof list[0]; i++)
        check_export(&list[i]);
}

/* ---- saves that fail --------------------------------------------------------------------------
 */

/* One rank can't write its bytes, or can't seal its file: all agree that there is no checkpoint,
 * what is there of it goes, the run and the next checkpoints don't suffer. */
static void a_rank_that_cannot_write_costs_the_checkpoint_alone(void **state)
{
    (void)state;
    static const char *const in_the_way[] = {"optim-3.safetensors", "part-0.json", "part-3.json"};
    static const struct where w = {&golden_tiny, 2, 2, 3, 0, false};
    for (size_t i = (size_t)effort(0, 0, 2); i < sizeof in_the_way / sizeof in_the_way[0]; i++) {
        struct gang_spec spec = spec_of(&w);
        struct run r = {.dir = gang_make_dir()};
        char path[600];
        struct error err = {0};
        snprintf(path, sizeof path, "%s/ckpt/step-%08d-a1.tmp/%s/x", r.dir, STOP, in_the_way[i]);
        assert_int_equal(fs_mkdirs(path, 0700, &err), 0);
        r.gang = (struct gang){.plan = gang_plan(&spec), .job_dir = r.dir};
        gang_run_well(&r.gang);
        assert_int_equal(r.gang.num_steps, STEPS);
        assert_int_equal(r.gang.num_checkpoints, 2);
        assert_int_equal(r.gang.checkpoint_steps[0], 2 * STOP);
        snprintf(path, sizeof path, "%s/ckpt/step-%08d-a1.tmp", r.dir, STOP);
        assert_false(fs_exists(path));
        snprintf(path, sizeof path, "%s/ckpt/step-%08d-a1", r.dir, STOP);
        assert_false(fs_exists(path));
        run_free(&r);
    }
}

/* The last state is nowhere, so the run fails; whichever rank is asked says what was in the way,
 * not that it was some other rank's fault. */
static void every_rank_tells_why_the_last_state_is_nowhere(void **state)
{
    (void)state;
    static const struct where w = {&golden_tiny, 2, 2, 3, 0, false};
    struct gang_spec spec = spec_of(&w);
    spec.steps = STOP;
    struct run r = {.dir = gang_make_dir()};
    char path[600];
    struct error err = {0};
    snprintf(path, sizeof path, "%s/ckpt/step-%08d-a1.tmp/part-3.json/x", r.dir, STOP);
    assert_int_equal(fs_mkdirs(path, 0700, &err), 0);
    r.gang = (struct gang){.plan = gang_plan(&spec), .job_dir = r.dir};
    gang_run(&r.gang);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(r.gang.ranks[i].rc, -1);
        if (strstr(r.gang.ranks[i].fault, "part-3.json") == NULL)
            fail_msg("rank %d says: %s", i, r.gang.ranks[i].fault);
    }
    run_free(&r);
}

static int in_fp64(void **state)
{
    (void)state;
    precision = "fp64";
    return 0;
}

static int make_config(void **state)
{
    (void)state;
    gang_quiet();
    snprintf(config_path, sizeof config_path, "/tmp/tandem-resume-XXXXXX.json");
    int fd = mkstemps(config_path, 5);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    return f && fputs(odd_config, f) >= 0 && fclose(f) == 0 ? 0 : -1;
}

static int remove_config(void **state)
{
    (void)state;
    return remove(config_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_resumed_run_equals_the_one_that_never_stopped, in_fp64),
        cmocka_unit_test_setup(a_resumed_run_in_bf16_equals_the_one_that_never_stopped, in_fp64),
        cmocka_unit_test_setup(a_rank_that_cannot_write_costs_the_checkpoint_alone, in_fp64),
        cmocka_unit_test_setup(every_rank_tells_why_the_last_state_is_nowhere, in_fp64),
        cmocka_unit_test_setup(an_export_of_many_ranks_loads_in_one_and_equals, in_fp64),
    };
    return cmocka_run_group_tests(tests, make_config, remove_config);
}
