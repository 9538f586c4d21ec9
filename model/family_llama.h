/* The Llama family: RMSNorm, rotary attention with grouped heads, SwiGLU, no biases. */
#ifndef TANDEM_MODEL_FAMILY_LLAMA_H
#define TANDEM_MODEL_FAMILY_LLAMA_H

#include "model/family.h"

extern const struct family family_llama;

#endif
