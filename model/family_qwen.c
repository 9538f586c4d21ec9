/* Qwen2ForCausalLM: Llama with biases on q, k and v. Qwen3ForCausalLM: Llama with normed heads. */
#include "model/family_decoder.h"
#include "model/family_others.h"

DECODER_FAMILY(qwen2, true, .qkv_bias = true);
DECODER_FAMILY(qwen3, true, .qk_norm = true);
