/* MixtralForCausalLM: Llama with a layer of experts in place of the MLP; w1 is the gate, w3 the up
 * and w2 the down projection. */
#include "model/family_decoder.h"
#include "model/family_others.h"

#define EXPERT "block_sparse_moe.experts.{expert}."

DECODER_FAMILY(mixtral, false, .router = "block_sparse_moe.gate.weight",
               .expert_gate = EXPERT "w1.weight", .expert_up = EXPERT "w3.weight",
               .expert_down = EXPERT "w2.weight");
