#include "plan/spec_rules.h"

#include <string.h>

#include "base/error.h"
#include "plan/mesh.h"

#define COUNT_MAX                                                                                  \
    9007199254740992.0         /* 2^53: exact in a double, and no product overflows unseen         \
                                */
#define BATCH_MAX 2147483648.0 /* 2^31 */
#define SEQ_MAX 16777216.0     /* 2^24 */
#define RANKS_MAX ((double)MESH_MAX_RANKS)
#define SECONDS_MAX 1e9

/* clang-format off */
static const struct spec_rule rules[] = {
    {.field = "JobSpec.name", .kind = SPEC_NAME, .required = true},
    {.field = "JobSpec.tenant", .kind = SPEC_NAME},
    {.field = "JobSpec.priority", .kind = SPEC_PRIORITY, .max = 1000, .words = "low normal high"},
    {.field = "JobSpec.tags", .kind = SPEC_TAG, .max_count = 32},
    {.field = "JobSpec.after", .kind = SPEC_RANGE, .min = 1, .max = COUNT_MAX, .max_count = 64},
    {.field = "JobSpec.hold"},
    {.field = "JobSpec.time_limit_s", .kind = SPEC_RANGE, .max = SECONDS_MAX},
    {.field = "JobSpec.model", .required = true},
    {.field = "JobSpec.data", .required = true},
    {.field = "JobSpec.training", .required = true},
    {.field = "JobSpec.finetune", .kind = SPEC_UNBUILT, .unbuilt = "fine-tuning",
     .unplanned = "*"},
    {.field = "JobSpec.parallel"},
    {.field = "JobSpec.resources"},
    {.field = "JobSpec.checkpoint"},
    {.field = "JobSpec.evaluation"},
    {.field = "JobSpec.retry"},
    {.field = "JobSpec.spikes"},

    {.field = "ModelSpec.path", .kind = SPEC_PATH},
    {.field = "ModelSpec.config", .kind = SPEC_PATH},
    {.field = "ModelSpec.init_seed"},
    {.field = "ModelSpec.from_checkpoint", .kind = SPEC_UNBUILT,
     .unbuilt = "starting from another job's checkpoint", .unplanned = "*"},

    {.field = "DataSpec.order", .kind = SPEC_WORD, .words = "sequential shuffled"},
    {.field = "DataSpec.tokenizer", .unbuilt = "a tokenizer other than bytes"},
    {.field = "DataSpec.train", .required = true},
    {.field = "DataSpec.validation", .kind = SPEC_UNBUILT, .unbuilt = "validation data"},
    {.field = "SourceSpec.path", .kind = SPEC_PATH, .required = true},
    {.field = "SourceSpec.format", .kind = SPEC_WORD, .words = "text u16 u32 tokenized-jsonl",
     .later = "jsonl chat megatron llmc", .required = true},
    {.field = "SourceSpec.window", .kind = SPEC_WORD, .words = "T T+1"},
    {.field = "SourceSpec.weight", .kind = SPEC_POSITIVE, .max = 1e9,
     .unbuilt = "weighting of sources"},

    {.field = "TrainingSpec.steps", .kind = SPEC_RANGE, .min = 1, .max = COUNT_MAX},
    {.field = "TrainingSpec.tokens", .kind = SPEC_RANGE, .min = 1, .max = 1e18},
    {.field = "TrainingSpec.epochs", .kind = SPEC_POSITIVE, .max = 1e9},
    {.field = "TrainingSpec.seq_len", .kind = SPEC_RANGE, .min = 1, .max = SEQ_MAX,
     .required = true},
    {.field = "TrainingSpec.global_batch_size", .kind = SPEC_RANGE, .min = 1, .max = BATCH_MAX,
     .required = true},
    {.field = "TrainingSpec.micro_batch_size", .kind = SPEC_RANGE, .min = 1, .max = BATCH_MAX},
    {.field = "TrainingSpec.seed"},
    {.field = "TrainingSpec.precision", .kind = SPEC_WORD,
     .words = "auto fp32 bf16 fp64", .later = "fp16 fp8", .unplanned = "fp8"},
    {.field = "TrainingSpec.grad_dtype", .kind = SPEC_WORD, .words = "fp32", .later = "bf16"},
    {.field = "TrainingSpec.deterministic"},
    {.field = "TrainingSpec.clip_grad_norm", .kind = SPEC_RANGE, .max = 1e30},
    {.field = "TrainingSpec.dropout", .kind = SPEC_RANGE, .max = 1, .unbuilt = "dropout"},
    {.field = "TrainingSpec.loss_scale"},
    {.field = "TrainingSpec.optimizer"},
    {.field = "TrainingSpec.lr_schedule"},
    {.field = "TrainingSpec.recompute"},
    {.field = "TrainingSpec.moe", .kind = SPEC_UNBUILT, .unbuilt = "mixture of experts"},
    {.field = "LossScaleSpec.initial", .kind = SPEC_POSITIVE, .max = 1e30,
     .unbuilt = "loss scaling (precision fp16)"},
    {.field = "LossScaleSpec.growth_interval", .kind = SPEC_RANGE, .min = 1, .max = COUNT_MAX,
     .unbuilt = "loss scaling (precision fp16)"},
    {.field = "OptimizerSpec.name", .kind = SPEC_WORD, .words = "adamw sgd"},
    {.field = "OptimizerSpec.lr", .kind = SPEC_RANGE, .max = 1e6},
    /* The upper bound is the largest double below 1. */
    {.field = "OptimizerSpec.betas", .kind = SPEC_RANGE, .max = 0.99999999999999989,
     .fill = "[0.9, 0.95]", .max_count = 2},
    {.field = "OptimizerSpec.eps", .kind = SPEC_POSITIVE, .max = 1},
    {.field = "OptimizerSpec.weight_decay", .kind = SPEC_RANGE, .max = 1e6},
    {.field = "LrScheduleSpec.warmup_steps", .kind = SPEC_RANGE, .max = COUNT_MAX},
    {.field = "LrScheduleSpec.decay", .kind = SPEC_WORD, .words = "cosine linear constant wsd"},
    {.field = "LrScheduleSpec.decay_steps", .kind = SPEC_RANGE, .max = COUNT_MAX},
    {.field = "LrScheduleSpec.min_lr_ratio", .kind = SPEC_RANGE, .max = 1},
    {.field = "RecomputeSpec.mode", .kind = SPEC_WORD, .words = "none", .later = "selective full"},
    {.field = "RecomputeSpec.every", .kind = SPEC_RANGE, .min = 1, .max = COUNT_MAX,
     .unbuilt = "recomputation"},
    {.field = "MoeSpec.aux_loss_scope", .kind = SPEC_WORD, .words = "sample batch micro_batch"},
    {.field = "MoeSpec.aux_loss_coef", .kind = SPEC_RANGE, .max = 1e6},
    {.field = "MoeSpec.z_loss_coef", .kind = SPEC_RANGE, .max = 1e6},
    {.field = "MoeSpec.capacity_factor", .kind = SPEC_RANGE, .max = 1e6},
    {.field = "MoeSpec.bias_update_rate", .kind = SPEC_RANGE, .max = 1e6},
    {.field = "FinetuneSpec.lora"},
    {.field = "LoraSpec.r", .kind = SPEC_RANGE, .min = 1, .max = SEQ_MAX},
    {.field = "LoraSpec.lora_alpha", .kind = SPEC_POSITIVE, .max = 1e6},
    {.field = "LoraSpec.target_modules", .kind = SPEC_NAME, .max_count = 64},

    {.field = "ParallelChoice.word", .kind = SPEC_WORD, .later = "auto", .unplanned = "auto"},
    {.field = "ParallelChoice.layout"},
    {.field = "ParallelSpec.data", .kind = SPEC_RANGE, .min = 1, .max = RANKS_MAX},
    {.field = "ParallelSpec.tensor", .kind = SPEC_RANGE, .min = 1, .max = RANKS_MAX},
    {.field = "ParallelSpec.pipeline", .kind = SPEC_RANGE, .min = 1, .max = RANKS_MAX,
     .unbuilt = "pipeline parallel"},
    {.field = "ParallelSpec.context", .kind = SPEC_RANGE, .min = 1, .max = RANKS_MAX,
     .unbuilt = "context parallel"},
    {.field = "ParallelSpec.expert", .kind = SPEC_RANGE, .min = 1, .max = RANKS_MAX,
     .unbuilt = "expert parallel"},
    {.field = "ParallelSpec.zero_stage", .kind = SPEC_RANGE, .max = 3},
    {.field = "ParallelSpec.shard_size", .kind = SPEC_RANGE, .max = RANKS_MAX},
    {.field = "ParallelSpec.sequence_parallel"},
    {.field = "ParallelSpec.context_mode", .kind = SPEC_WORD, .words = "ring all_gather ulysses"},
    {.field = "ParallelSpec.schedule", .kind = SPEC_WORD,
     .words = "gpipe 1f1b interleaved zb-h1 zb-h2 zb-v dualpipe pipedream"},
    {.field = "ParallelSpec.virtual_stages", .kind = SPEC_RANGE, .min = 1, .max = RANKS_MAX,
     .unbuilt = "pipeline parallel"},
    {.field = "ParallelSpec.layers_per_stage", .kind = SPEC_UNBUILT,
     .unbuilt = "pipeline parallel"},
    {.field = "ParallelSpec.bucket_mb", .kind = SPEC_POSITIVE, .max = 1048576},

    {.field = "ResourcesSpec.devices", .kind = SPEC_RANGE, .min = 1, .max = RANKS_MAX},
    {.field = "ResourcesSpec.min_devices", .kind = SPEC_RANGE, .max = RANKS_MAX,
     .unbuilt = "an elastic range"},
    {.field = "ResourcesSpec.max_devices", .kind = SPEC_RANGE, .max = RANKS_MAX,
     .unbuilt = "an elastic range"},
    {.field = "ResourcesSpec.spares", .kind = SPEC_RANGE, .max = RANKS_MAX,
     .unbuilt = "keeping spare devices"},
    {.field = "ResourcesSpec.type", .kind = SPEC_WORD,
     .words = "any cpu a100 h100 h200 b200 gb200", .open = true},
    {.field = "ResourcesSpec.backend", .kind = SPEC_WORD, .words = "auto ref cpu cuda"},
    {.field = "ResourcesSpec.nodes", .kind = SPEC_NAME, .max_count = 1024},

    {.field = "CheckpointSpec.interval", .kind = SPEC_INTERVAL, .max = COUNT_MAX, .later = "auto"},
    {.field = "CheckpointSpec.interval_s", .kind = SPEC_RANGE, .max = SECONDS_MAX,
     .unbuilt = "checkpointing by the clock"},
    {.field = "CheckpointSpec.keep", .kind = SPEC_RANGE, .max = COUNT_MAX,
     .unbuilt = "checkpoint retention"},
    {.field = "CheckpointSpec.keep_every", .kind = SPEC_RANGE, .max = COUNT_MAX,
     .unbuilt = "checkpoint retention"},
    {.field = "CheckpointSpec.keep_best", .kind = SPEC_RANGE, .max = COUNT_MAX,
     .unbuilt = "checkpoint retention"},
    {.field = "CheckpointSpec.async"},
    {.field = "CheckpointSpec.export_at_end"},
    {.field = "EvaluationSpec.interval", .kind = SPEC_RANGE, .max = COUNT_MAX,
     .unbuilt = "evaluation"},
    {.field = "EvaluationSpec.steps", .kind = SPEC_RANGE, .min = 1, .max = COUNT_MAX,
     .unbuilt = "evaluation"},
    {.field = "EvaluationSpec.early_stop_patience", .kind = SPEC_RANGE, .max = COUNT_MAX,
     .unbuilt = "evaluation"},
    {.field = "RetrySpec.max_restarts", .kind = SPEC_RANGE, .max = 1000000},
    {.field = "RetrySpec.first_backoff_s", .kind = SPEC_RANGE, .max = SECONDS_MAX},
    {.field = "RetrySpec.max_backoff_s", .kind = SPEC_RANGE, .max = SECONDS_MAX},
    {.field = "RetrySpec.reset_after_steps", .kind = SPEC_RANGE, .max = COUNT_MAX},
    {.field = "SpikesSpec.action", .kind = SPEC_WORD, .words = "off",
     .later = "warn rollback stop"},
    {.field = "SpikesSpec.window", .kind = SPEC_RANGE, .min = 1, .max = COUNT_MAX,
     .unbuilt = "acting on loss spikes"},
    {.field = "SpikesSpec.threshold", .kind = SPEC_POSITIVE, .max = 1e6,
     .unbuilt = "acting on loss spikes"},
};
/* clang-format on */

const struct spec_rule *spec_rules_at(size_t i)
{
    return i < sizeof rules / sizeof *rules ? &rules[i] : NULL;
}

const struct spec_rule *spec_rules_find(const char *field)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (strcmp(rules[i].field, field) == 0) {
            return &rules[i];
        }
    }
    return NULL;
}

void spec_words_split(struct spec_words *out, const char *a, const char *b)
{
    memset(out, 0, sizeof *out);
    size_t used = 0;
    for (int i = 0; i < 2; i++) {
        const char *p = i == 0 ? a : b;
        while (p && *p) {
            size_t len = strcspn(p, " ");
            ASSERT(used + len < sizeof out->store && out->num < SPEC_WORDS_MAX);
            memcpy(out->store + used, p, len);
            out->word[out->num++] = out->store + used;
            used += len + 1;
            p += len + (p[len] == ' ');
        }
    }
}
