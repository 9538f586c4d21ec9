/* LlamaForCausalLM. */
#include "model/family_llama.h"

#include "model/family_decoder.h"

DECODER_FAMILY(llama, true, .qkv_bias = false);
