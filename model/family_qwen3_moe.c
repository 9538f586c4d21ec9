/* Qwen3MoeForCausalLM: Qwen3 with a layer of experts in place of every MLP. */
#include "model/family_decoder.h"
#include "model/family_others.h"

#define EXPERT "mlp.experts.{expert}."

DECODER_FAMILY(qwen3_moe, false, .qk_norm = true, .router = "mlp.gate.weight",
               .expert_gate = EXPERT "gate_proj.weight", .expert_up = EXPERT "up_proj.weight",
               .expert_down = EXPERT "down_proj.weight");
