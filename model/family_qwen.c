/* Qwen2ForCausalLM: Llama with biases on q, k and v. Qwen3ForCausalLM: Llama with normed heads. */
#include "model/family_decoder.h"
#include "model/family_others.h"

DECODER_FAMILY(qwen2, false, .qkv_bias = true);
DECODER_FAMILY(qwen3, false, .qk_norm = true);
