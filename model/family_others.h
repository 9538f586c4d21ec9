/* The families beside Llama. */
#ifndef TANDEM_MODEL_FAMILY_OTHERS_H
#define TANDEM_MODEL_FAMILY_OTHERS_H

#include "model/family.h"

extern const struct family family_qwen2;
extern const struct family family_qwen3;
extern const struct family family_mixtral;
extern const struct family family_qwen3_moe;
extern const struct family family_gpt2;

#endif
