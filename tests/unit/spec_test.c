/* plan/spec_check: what a job file may say, and what is said of one that may not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "plan/spec_check.h"
#include "proto/field.h"
#include "proto/text.h"
#include "spec_case.h"

/* SPEC_CASE_LEAST with some fields set: "path=value|path=value". A null value takes a field away.
 */
static JobSpec *least_with(const char *sets)
{
    JobSpec *spec = spec_case_parse(SPEC_CASE_LEAST);
    char *copy = strdup(sets), *rest = copy;
    assert_non_null(copy);
    for (char *one; (one = strsep(&rest, "|")) && *one;) {
        struct error err = {0};
        char *value = strchr(one, '=');
        assert_non_null(value);
        *value++ = 0;
        if (text_set(&spec->base, one, value, &err)) {
            fail_msg("%s", err.text);
        }
    }
    free(copy);
    return spec;
}

static const struct {
    const char *sets, *said;
} refused[] = {
    /* Required. */
    {"name=null", "name: required"},
    {"model=null", "model: required"},
    {"model.path=null", "model: wants one of path and config"},
    {"model.config=/c", "model: path and config exclude each other"},
    {"data=null", "data: required"},
    {"data.train=[]", "data.train: required"},
    {"data.train.0.path=null", "data.train.0.path: required"},
    {"data.train.0.format=null", "data.train.0.format: required"},
    {"training=null", "training: required"},
    {"training.seq_len=null", "training.seq_len: required"},
    {"training.global_batch_size=null", "training.global_batch_size: required"},
    {"training.steps=null", "training: wants one of steps, tokens and epochs"},
    {"training.tokens=5", "training: steps, tokens and epochs exclude each other"},
    /* Names and paths. */
    {"name=a b", "name: \"a b\" holds other than letters, digits, dot, dash and underscore"},
    {"name=\"\"", "name: \"\" is empty"},
    {"name=17", "name: \"17\" is a number, as ids are; add a letter"},
    {"name=-a", "name: \"-a\" begins with a dot or dash"},
    {"name=0123456789a0123456789a0123456789a0123456789a0123456789a0123456789",
     "name: \"0123456789a0123456789a0123456789a0123456...\" is longer than 64 characters"},
    {"tenant=a/b", "tenant: \"a/b\" holds other than letters, digits, dot, dash and underscore"},
    {"tags=[ok, '']", "tags.1: \"\": wants 1 to 64 characters on one line"},
    {"tags=[a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a,a]",
     "tags: 33 elements; wants at most 32"},
    {"resources.nodes=[n1, n 2]",
     "resources.nodes.1: \"n 2\" holds other than letters, digits, dot, dash and underscore"},
    {"model.path=models/m", "model.path: \"models/m\": wants an absolute path (the CLI makes it "
                            "one, counting from the job file)"},
    {"data.train.0.path=d", "data.train.0.path: \"d\": wants an absolute path (the CLI makes it "
                            "one, counting from the job file)"},
    /* Words. */
    {"priority=hihg", "priority: \"hihg\" is not one of low, normal, high or a whole number from 0 "
                      "to 1000; did you mean high?"},
    {"priority=1001", "priority: 1001: wants a whole number from 0 to 1000"},
    {"priority=-1", "priority: -1: wants a whole number from 0 to 1000"},
    {"data.order=random", "data.order: \"random\" is not one of sequential, shuffled"},
    {"data.train.0.format=U16", "data.train.0.format: \"U16\" is not one of text, u16, u32, "
                                "tokenized-jsonl, jsonl, chat, megatron, llmc; did you mean u16?"},
    {"data.train.0.window=T+2",
     "data.train.0.window: \"T+2\" is not one of T, T+1; did you mean T+1?"},
    {"training.precision=float32", "training.precision: \"float32\" is not one of auto, fp32, "
                                   "bf16, fp64, fp16, fp8; did you mean fp32?"},
    {"training.precision=bfloat16", "training.precision: \"bfloat16\" is not one of auto, fp32, "
                                    "bf16, fp64, fp16, fp8; did you mean bf16?"},
    {"resources.backend=gpu",
     "resources.backend: \"gpu\" is not one of auto, ref, cpu, cuda; did you mean cuda?"},
    {"training.optimizer.name=adam",
     "training.optimizer.name: \"adam\" is not one of adamw, sgd; did you mean adamw?"},
    {"training.lr_schedule.decay=cosin", "training.lr_schedule.decay: \"cosin\" is not one of "
                                         "cosine, linear, constant, wsd; did you mean cosine?"},
    {"parallel.schedule=1F1B", "parallel.schedule: \"1F1B\" is not one of gpipe, 1f1b, "
                               "interleaved, zb-h1, zb-h2, zb-v, dualpipe, pipedream; did you mean "
                               "1f1b?"},
    {"parallel.context_mode=rings", "parallel.context_mode: \"rings\" is not one of ring, "
                                    "all_gather, ulysses; did you mean ring?"},
    {"parallel=automatic", "parallel: \"automatic\" is not auto or the fields of a mapping"},
    {"resources.type=an h100", "resources.type: \"an h100\" holds other than letters, digits, dot, "
                               "dash and underscore"},
    {"checkpoint.interval=often", "checkpoint.interval: \"often\" is not auto or a whole number "
                                  "from 0 to 9007199254740992"},
    {"checkpoint.interval=1.5", "checkpoint.interval: \"1.5\" is not auto or a whole number from 0 "
                                "to 9007199254740992"},
    {"checkpoint.interval=-5",
     "checkpoint.interval: -5: wants a whole number from 0 to 9007199254740992"},
    {"spikes.action=stopp", "spikes.action: \"stopp\" is not one of off, warn, rollback, stop; did "
                            "you mean stop?"},
    /* Numbers. */
    {"training.steps=0", "training.steps: 0: wants a whole number from 1 to 9007199254740992"},
    {"training.steps=9223372036854775807",
     "training.steps: 9223372036854775807: wants a whole number from 1 to 9007199254740992"},
    {"training.steps=9007199254740992|training.seq_len=16777216|training.global_batch_size="
     "2147483648",
     "training.steps: 9007199254740992: with 36028797018963968 tokens a step that is more than "
     "2^62 tokens"},
    {"training.steps=null|training.tokens=0",
     "training.tokens: 0: wants a number from 1 to 1.0e+18"},
    {"training.steps=null|training.epochs=0",
     "training.epochs: 0: wants a number above 0 and up to 1000000000"},
    {"training.seq_len=0", "training.seq_len: 0: wants a whole number from 1 to 16777216"},
    {"training.seq_len=16777217",
     "training.seq_len: 16777217: wants a whole number from 1 to 16777216"},
    {"training.global_batch_size=-4",
     "training.global_batch_size: -4: wants a whole number from 1 to 2147483648"},
    {"training.micro_batch_size=0",
     "training.micro_batch_size: 0: wants a whole number from 1 to 2147483648"},
    {"training.clip_grad_norm=-1", "training.clip_grad_norm: -1: wants a number from 0 to 1.0e+30"},
    {"training.dropout=1.5", "training.dropout: 1.5: wants a number from 0 to 1"},
    {"training.optimizer.lr=-0.1", "training.optimizer.lr: -0.1: wants a number from 0 to 1000000"},
    {"training.optimizer.eps=0", "training.optimizer.eps: 0: wants a number above 0 and up to 1"},
    {"training.optimizer.betas=[0.9]",
     "training.optimizer.betas: wants two numbers, as [0.9, 0.95]"},
    {"training.optimizer.betas=[0.9, 0.9, 0.9]",
     "training.optimizer.betas: 3 elements; wants at most 2"},
    {"training.optimizer.betas=[0.9, 1]",
     "training.optimizer.betas.1: 1: wants a number from 0 to 0.9999999999999999"},
    {"training.optimizer.weight_decay=-1",
     "training.optimizer.weight_decay: -1: wants a number from 0 to 1000000"},
    {"training.lr_schedule.warmup_steps=-1", "training.lr_schedule.warmup_steps: -1: wants a whole "
                                             "number from 0 to 9007199254740992"},
    {"training.lr_schedule.min_lr_ratio=2",
     "training.lr_schedule.min_lr_ratio: 2: wants a number from 0 to 1"},
    {"parallel.data=0", "parallel.data: 0: wants a whole number from 1 to 131072"},
    {"parallel.data=131073", "parallel.data: 131073: wants a whole number from 1 to 131072"},
    {"parallel.bucket_mb=0", "parallel.bucket_mb: 0: wants a number above 0 and up to 1048576"},
    {"retry.max_restarts=-1", "retry.max_restarts: -1: wants a whole number from 0 to 1000000"},
    {"retry.first_backoff_s=-1", "retry.first_backoff_s: -1: wants a number from 0 to 1000000000"},
    {"retry.max_backoff_s=-1", "retry.max_backoff_s: -1: wants a number from 0 to 1000000000"},
    {"retry.reset_after_steps=-1",
     "retry.reset_after_steps: -1: wants a whole number from 0 to 9007199254740992"},
    {"time_limit_s=-1", "time_limit_s: -1: wants a whole number from 0 to 1000000000"},
    {"after=[3, 0]", "after.1: 0: wants a whole number from 1 to 9007199254740992"},
    {"after=[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,"
     "32,"
     "33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63,"
     "64,65]",
     "after: 65 elements; wants at most 64"},
    /* Combinations. */
    {"parallel.data=4|training.global_batch_size=10",
     "training.global_batch_size: 10: not a multiple of parallel.data x micro_batch_size = 4 x 1 = "
     "4; use 8 or 12"},
    {"training.micro_batch_size=8", "training.global_batch_size: 4: not a multiple of "
                                    "parallel.data x micro_batch_size = 1 x 8 = 8; use 8"},
    {"resources.devices=4|parallel.data=2",
     "resources.devices: 4: the layout data 2 x tensor 1 x pipeline 1 x context 1 has 2; use 2 or "
     "change the layout"},
    {"training.precision=fp64|resources.backend=cpu",
     "resources.backend: cpu: computes in fp32 and bf16; with precision fp64 use ref or auto"},
    {"training.precision=fp64|resources.backend=cuda",
     "resources.backend: cuda: computes in fp32 and bf16; with precision fp64 use ref or auto"},
    {"data.train.0.format=tokenized-jsonl|data.train.0.window=T+1",
     "data.train.0.window: T+1: a row of tokenized-jsonl is a sample as it is; leave window out"},
    {"parallel.data=4|parallel.zero_stage=HYBRID_SHARD",
     "parallel.zero_stage: HYBRID_SHARD shards inside blocks of ranks: parallel.shard_size has to "
     "say of how many (a divisor of parallel.data 4); without blocks use FULL_SHARD"},
    {"parallel.data=4|parallel.zero_stage=hybrid_shard|parallel.shard_size=3",
     "parallel.shard_size: 3: has to divide parallel.data 4; use 2 or 4"},
    {"parallel.zero_stage=4", "parallel.zero_stage: 4: wants a whole number from 0 to 3"},
    {"parallel.zero_stage=-1", "parallel.zero_stage: -1: wants a whole number from 0 to 3"},
    /* Not built. */
    {"model.from_checkpoint=a@5",
     "model.from_checkpoint: starting from another job's checkpoint is not built yet; leave it "
     "out"},
    {"data.tokenizer=/t/tokenizer.json",
     "data.tokenizer: /t/tokenizer.json: a tokenizer other than bytes is not built yet; use bytes"},
    {"data.train.0.format=jsonl",
     "data.train.0.format: jsonl: not built yet; use text, u16, u32 or tokenized-jsonl"},
    {"data.train.0.weight=2", "data.train.0.weight: 2: weighting of sources is not built yet; use "
                              "1"},
    {"data.train.1.path=/e|data.train.1.format=u16",
     "data.train: 2 sources: mixing sources is not built yet; use 1"},
    {"data.validation=[{path: /v, format: u16}]",
     "data.validation: validation data is not built yet; leave it out"},
    {"training.precision=fp16",
     "training.precision: fp16: not built yet; use auto, fp32, bf16 or fp64"},
    {"training.precision=fp8",
     "training.precision: fp8: not built yet; use auto, fp32, bf16 or fp64"},
    {"training.grad_dtype=bf16", "training.grad_dtype: bf16: not built yet; use fp32"},
    {"training.dropout=0.1", "training.dropout: 0.1: dropout is not built yet; use 0"},
    {"training.loss_scale.initial=1", "training.loss_scale.initial: 1: loss scaling (precision "
                                      "fp16) is not built yet; use 65536"},
    {"training.recompute.mode=full", "training.recompute.mode: full: not built yet; use none"},
    {"training.recompute.every=2",
     "training.recompute.every: 2: recomputation is not built yet; use 1"},
    {"training.moe={}", "training.moe: mixture of experts is not built yet; leave it out"},
    {"finetune={lora: {r: 8}}", "finetune: fine-tuning is not built yet; leave it out"},
    {"parallel=auto", "parallel: auto: not built yet; use the fields of a mapping"},
    {"parallel.pipeline=2", "parallel.pipeline: 2: pipeline parallel is not built yet; use 1"},
    {"parallel.context=2", "parallel.context: 2: context parallel is not built yet; use 1"},
    {"parallel.expert=2", "parallel.expert: 2: expert parallel is not built yet; use 1"},
    {"parallel.virtual_stages=2",
     "parallel.virtual_stages: 2: pipeline parallel is not built yet; use 1"},
    {"parallel.layers_per_stage=[4]",
     "parallel.layers_per_stage: pipeline parallel is not built yet; leave it out"},
    {"resources.min_devices=1",
     "resources.min_devices: 1: an elastic range is not built yet; use 0"},
    {"resources.max_devices=4",
     "resources.max_devices: 4: an elastic range is not built yet; use 0"},
    {"resources.spares=1", "resources.spares: 1: keeping spare devices is not built yet; use 0"},
    {"checkpoint.interval=auto", "checkpoint.interval: auto: not built yet; use a whole number "
                                 "from 0 to 9007199254740992"},
    {"checkpoint.interval_s=60",
     "checkpoint.interval_s: 60: checkpointing by the clock is not built yet; use 0"},
    {"checkpoint.keep=3", "checkpoint.keep: 3: checkpoint retention is not built yet; use 0"},
    {"checkpoint.keep_every=3",
     "checkpoint.keep_every: 3: checkpoint retention is not built yet; use 0"},
    {"checkpoint.keep_best=3",
     "checkpoint.keep_best: 3: checkpoint retention is not built yet; use 0"},
    {"evaluation.interval=10", "evaluation.interval: 10: evaluation is not built yet; use 0"},
    {"spikes.action=warn", "spikes.action: warn: not built yet; use off"},
};

/* Each way to be wrong has its own sentence, with the field as the user wrote it and the mend. */
static void every_bad_job_file_is_refused_in_its_own_words(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct error err = {0};
        JobSpec *spec = least_with(refused[i].sets);
        if (spec_check(spec, &err) != -1 || err.code != ERR_INVALID_ARGUMENT ||
            strcmp(err.text, refused[i].said) != 0) {
            print_message("%s:\n  says   %s\n  wanted %s\n", refused[i].sets, err.text,
                          refused[i].said);
            wrong++;
        }
        job_spec__free_unpacked(spec, NULL);
    }
    assert_int_equal(wrong, 0);
}

/* What a plan can't be made without. */
static bool never_planned(const char *sets)
{
    return strncmp(sets, "finetune", 8) == 0 || strstr(sets, "from_checkpoint") ||
           strcmp(sets, "training.precision=fp8") == 0 || strcmp(sets, "parallel=auto") == 0;
}

/* For a plan, what isn't built is noted under the same field; all else is refused in the same
 * words. */
static void a_plan_notes_what_is_not_built_and_refuses_the_rest(void **state)
{
    (void)state;
    size_t noted = 0;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct error err = {0};
        struct spec_unbuilt unbuilt = {0};
        JobSpec *spec = least_with(refused[i].sets);
        int rc = spec_check_plan(spec, &unbuilt, &err);
        bool later = strstr(refused[i].said, "not built yet") && !never_planned(refused[i].sets) &&
                     !strstr(refused[i].said, "mixing sources");
        /* Alone it may break a rule of layouts; that has its own sentence about the same field. */
        size_t name = strcspn(refused[i].said, ":");
        if (later && rc != 0 && strncmp(refused[i].said, "parallel.", 9) == 0 &&
            strncmp(err.text, refused[i].said, name + 1) == 0) {
            later = false;
        } else if (!later && rc != 0) {
            assert_string_equal(err.text, refused[i].said);
        }
        if (later != (rc == 0)) {
            fail_msg("%s: %s", refused[i].sets, rc == 0 ? "is planned" : err.text);
        }
        if (rc == 0) {
            size_t field = strcspn(refused[i].said, ":");
            assert_int_equal(unbuilt.num, 1);
            if (strncmp(unbuilt.lines[0], refused[i].said, field + 1) != 0 ||
                !strstr(unbuilt.lines[0], " is not built yet")) {
                fail_msg("%s: %s", refused[i].sets, unbuilt.lines[0]);
            }
            noted++;
        }
        spec_unbuilt_free(&unbuilt);
        job_spec__free_unpacked(spec, NULL);
    }
    assert_true(noted > 20);
}

/* Rules between the fields of a layout; each names the field and the nearest that does. */
static const struct {
    const char *sets, *said;
} bad_layouts[] = {
    {"parallel={data: 1, context: 4}|training.seq_len=60",
     "training.seq_len: 60: parallel.context 4 (ring) cuts a sample into 8 equal pieces; use 56 or "
     "64"},
    {"parallel={data: 1, context: 4, context_mode: ulysses}|training.seq_len=62",
     "training.seq_len: 62: parallel.context 4 (ulysses) cuts a sample into 4 equal pieces; use 60 "
     "or 64"},
    {"parallel={data: 4, context: 3, expert: 4}|training.seq_len=60",
     "parallel.expert: 4: is carved from data x context = 4 x 3: has to divide the product, and "
     "context or be a multiple of it; use 3 or 6"},
    {"parallel={data: 4, shard_size: 2}",
     "parallel.shard_size: 2: parallel.zero_stage 0 shards nothing; leave it out, or use "
     "zero_stage 1, 2 or 3"},
    {"parallel={data: 8, zero_stage: 3, shard_size: 3}",
     "parallel.shard_size: 3: has to divide parallel.data 8; use 2 or 4"},
    {"parallel={data: 1, virtual_stages: 2}",
     "parallel.virtual_stages: 2: there is one stage (parallel.pipeline 1); use 1"},
    {"parallel={data: 1, pipeline: 2, virtual_stages: 2}",
     "parallel.virtual_stages: 2: schedule 1f1b has one chunk of layers a stage; use 1, or "
     "schedule "
     "interleaved"},
    {"parallel={data: 1, pipeline: 2, schedule: zb-v}",
     "parallel.virtual_stages: 1: schedule zb-v has two chunks of layers a stage; use 2"},
    {"parallel={data: 1, pipeline: 3, schedule: interleaved, virtual_stages: 2}",
     "training.global_batch_size: 8: makes 8 micro-batches; interleaved wants a multiple of "
     "parallel.pipeline 3; use 6 or 9"},
    {"parallel={data: 1, pipeline: 3, schedule: dualpipe}",
     "parallel.pipeline: 3: dualpipe wants an even number of stages; use 2 or 4"},
    {"parallel={data: 2, pipeline: 4, schedule: dualpipe}",
     "training.global_batch_size: 8: makes 4 micro-batches; dualpipe wants an even number, 2 x "
     "pipeline = 8 or more; use 16"},
    {"parallel={data: 1, pipeline: 2, tensor: 2, schedule: pipedream}",
     "parallel.tensor: schedule pipedream goes with pipeline and plain data parallel alone; use 1, "
     "or another schedule"},
    {"parallel={data: 1, pipeline: 2, zero_stage: 1, schedule: pipedream}",
     "parallel.zero_stage: schedule pipedream goes with pipeline and plain data parallel alone; "
     "use "
     "0, or another schedule"},
    {"parallel={data: 1, pipeline: 2, schedule: pipedream}",
     "training.clip_grad_norm: 1: schedule pipedream has no moment at which all gradients of a "
     "step "
     "are there; use 0, or another schedule"},
    {"parallel={data: 1, pipeline: 2, layers_per_stage: [3, 2, 1]}",
     "parallel.layers_per_stage: 3: there are 2 stages (parallel.pipeline); give one number for "
     "each, or none"},
};

static void bad_layouts_are_refused_with_the_nearest_that_do(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof bad_layouts / sizeof *bad_layouts; i++) {
        struct error err = {0};
        struct spec_unbuilt unbuilt = {0};
        char sets[512];
        snprintf(sets, sizeof sets, "training.global_batch_size=8|training.micro_batch_size=1|%s",
                 bad_layouts[i].sets);
        JobSpec *spec = least_with(sets);
        int rc = spec_check_plan(spec, &unbuilt, &err);
        if (rc != -1 || strcmp(err.text, bad_layouts[i].said) != 0) {
            print_message("%s:\n  says   %s\n  wanted %s\n", bad_layouts[i].sets,
                          rc ? err.text : "(planned)", bad_layouts[i].said);
            wrong++;
        }
        spec_unbuilt_free(&unbuilt);
        job_spec__free_unpacked(spec, NULL);
    }
    assert_int_equal(wrong, 0);
}

static void good_job_files_pass(void **state)
{
    (void)state;
    static const char *const good[] = {
        "",
        "training.steps=null|training.tokens=1e9",
        "training.steps=null|training.epochs=0.5",
        "model.path=null|model.config=/c|model.init_seed=18446744073709551615",
        "priority=0",
        "priority=1000",
        "priority=high",
        "parallel.data=4|training.micro_batch_size=1|resources.devices=4",
        "parallel.data=2|training.micro_batch_size=2",
        "training.precision=fp64",
        "training.precision=fp64|resources.backend=ref",
        "training.lr_schedule.warmup_steps=1000",
        "training.optimizer.name=sgd|training.optimizer.lr=0",
        "data.order=sequential|data.train.0.window=T+1|data.train.0.format=text",
        "checkpoint.interval=1e3|checkpoint.async=false|checkpoint.export_at_end=false",
        "parallel.schedule=gpipe|parallel.context_mode=ulysses",
        "hold=true|time_limit_s=3600|after=[3, 12]",
        "tags=[a b, 'T:1']|tenant=research|resources.nodes=[n1, n2.cluster]",
        /* The default of what isn't built may be said. */
        "hold=false|time_limit_s=0|parallel.tensor=1|parallel.zero_stage=0|training.dropout=0|"
        "after=[]|data.validation=[]|data.train.0.weight=1|training.recompute={mode: none, every: "
        "1}|training.loss_scale={initial: 65536}|spikes={action: off}|evaluation={interval: 0}",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct error err = {0};
        JobSpec *spec = least_with(good[i]);
        if (spec_check(spec, &err)) {
            fail_msg("%s: %s", good[i], err.text);
        }
        job_spec__free_unpacked(spec, NULL);
    }
}

/* ---- defaults ------------------------------------------------------------------------------- */

/* [18] FSDP's words for zero_stage, in a job file of either kind and on the command line, in any
 * case; what is stored is the number. */
static void sharding_has_the_names_of_fsdp(void **state)
{
    (void)state;
    static const struct {
        const char *word;
        int64_t stage;
    } names[] = {{"NO_SHARD", 0},   {"SHARD_GRAD_OP", 2},      {"FULL_SHARD", 3}, {"full_shard", 3},
                 {"Full_Shard", 3}, {"ZERO_NAME_NO_SHARD", 0}, {"2", 2}};
    struct error err = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[256];
        for (int json = 0; json < 2; json++) {
            snprintf(text, sizeof text,
                     json ? "{\"parallel\": {\"data\": 4, \"zero_stage\": %s%s%s}}"
                          : "parallel:\n  data: 4\n  zero_stage: %s%s%s\n",
                     json && i < 6 ? "\"" : "", names[i].word, json && i < 6 ? "\"" : "");
            JobSpec *spec = spec_case_parse(text);
            assert_int_equal(spec->parallel->layout->zero_stage, names[i].stage);
            job_spec__free_unpacked(spec, NULL);
        }
        snprintf(text, sizeof text, "parallel.data=4|parallel.zero_stage=%s", names[i].word);
        JobSpec *spec = least_with(text);
        assert_int_equal(spec_check(spec, &err), 0);
        assert_int_equal(spec->parallel->layout->zero_stage, names[i].stage);
        job_spec__free_unpacked(spec, NULL);
    }
    JobSpec *spec = least_with("parallel.data=4|parallel.zero_stage=HYBRID_SHARD|"
                               "parallel.shard_size=2");
    assert_int_equal(spec_check(spec, &err), 0);
    assert_int_equal(spec->parallel->layout->zero_stage, 3);
    struct buf out = {0};
    text_to_yaml(&out, &spec->base);
    assert_non_null(strstr(out.data, "zero_stage: 3\n"));
    buf_free(&out);
    assert_int_equal(text_set(&spec->base, "parallel.zero_stage", "FULL_SHRD", &err), -1);
    assert_string_equal(err.text,
                        "parallel.zero_stage: wants a whole number or one of HYBRID_SHARD, "
                        "NO_SHARD, SHARD_GRAD_OP, FULL_SHARD, got \"FULL_SHRD\"; did you mean "
                        "FULL_SHARD?");
    assert_int_equal(text_set(&spec->base, "parallel.shard_size", "FULL_SHARD", &err), -1);
    assert_non_null(strstr(err.text, "wants a whole number, got"));
    job_spec__free_unpacked(spec, NULL);
}

/* The stored spec is packed, read back, and may be checked again by a later version. */
static void a_checked_spec_survives_packing_and_a_second_check(void **state)
{
    (void)state;
    struct error err = {0};
    JobSpec *spec = spec_case_parse(SPEC_CASE_LEAST);
    assert_int_equal(spec_check(spec, &err), 0);
    JobSpec *copy = (JobSpec *)text_clone(&spec->base);
    spec_case_same(copy, spec);
    assert_true(text_is_set(&copy->base, "priority"));
    assert_true(text_is_set(&copy->base, "training.optimizer.betas.1"));
    assert_true(text_is_set(&copy->base, "retry.max_restarts"));
    if (spec_check(copy, &err)) {
        fail_msg("%s", err.text);
    }
    spec_case_same(copy, spec);
    job_spec__free_unpacked(copy, NULL);
    job_spec__free_unpacked(spec, NULL);
}

static void priority_and_interval_are_read_as_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *sets;
        int priority, interval;
    } all[] = {{"priority=low", 250, 0},
               {"", 500, 0},
               {"priority=high|checkpoint.interval=25", 750, 25},
               {"priority=0|checkpoint.interval=1e3", 0, 1000}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct error err = {0};
        JobSpec *spec = least_with(all[i].sets);
        assert_int_equal(spec_check(spec, &err), 0);
        assert_int_equal(spec_priority(spec), all[i].priority);
        assert_int_equal(spec_checkpoint_interval(spec), all[i].interval);
        assert_int_equal(spec_layout(spec)->data, 1);
        job_spec__free_unpacked(spec, NULL);
    }
}

/* ---- off the wire --------------------------------------------------------------------------- */

/* A text file can't hold these, a client's message can. */
static void what_only_the_wire_can_hold_is_refused(void **state)
{
    (void)state;
    struct error err = {0};
    JobSpec *spec = spec_case_parse(SPEC_CASE_LEAST);
    spec->training->has_clip_grad_norm = 1;
    spec->training->clip_grad_norm = NAN;
    assert_int_equal(spec_check(spec, &err), -1);
    assert_string_equal(err.text, "training.clip_grad_norm: nan: wants a number from 0 to 1.0e+30");
    job_spec__free_unpacked(spec, NULL);

    spec = spec_case_parse(SPEC_CASE_LEAST);
    strcpy(spec->name, "\x1b");
    assert_int_equal(spec_check(spec, &err), -1);
    assert_string_equal(err.text, "name: holds a control character");
    job_spec__free_unpacked(spec, NULL);

    /* A choice with nothing chosen is a layout of defaults. */
    spec = spec_case_parse(SPEC_CASE_LEAST);
    field_add_message(&spec->base, field_find(&job_spec__descriptor, "parallel", 8));
    assert_int_equal(spec_check(spec, &err), 0);
    assert_int_equal(spec_layout(spec)->data, 1);
    job_spec__free_unpacked(spec, NULL);
}

/* A newer client's field is not dropped in silence. */
static void a_field_of_a_newer_version_is_refused(void **state)
{
    (void)state;
    struct error err = {0};
    JobSpec *spec = spec_case_parse(SPEC_CASE_LEAST);
    uint8_t wire[1024];
    size_t len = job_spec__pack(spec, wire);
    job_spec__free_unpacked(spec, NULL);
    wire[len++] = 0xf8; /* field 1999, a varint */
    wire[len++] = 0x7c;
    wire[len++] = 1;
    spec = job_spec__unpack(NULL, len, wire);
    assert_non_null(spec);
    assert_int_equal(spec_check(spec, &err), -1);
    assert_string_equal(err.text, "field number 1999 is not known to this version of the server");
    job_spec__free_unpacked(spec, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bad_job_file_is_refused_in_its_own_words),
        cmocka_unit_test(a_plan_notes_what_is_not_built_and_refuses_the_rest),
        cmocka_unit_test(bad_layouts_are_refused_with_the_nearest_that_do),
        cmocka_unit_test(good_job_files_pass),
        cmocka_unit_test(sharding_has_the_names_of_fsdp),
        cmocka_unit_test(a_checked_spec_survives_packing_and_a_second_check),
        cmocka_unit_test(priority_and_interval_are_read_as_numbers),
        cmocka_unit_test(what_only_the_wire_can_hold_is_refused),
        cmocka_unit_test(a_field_of_a_newer_version_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
