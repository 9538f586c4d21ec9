/* Names in Hugging Face folders where they aren't the table's: what old exports carry besides the
 * parameters, and GPT-2 as it was first published, without "transformer." before its names. */
#ifndef TANDEM_RUNTIME_CKPT_HF_NAMES_H
#define TANDEM_RUNTIME_CKPT_HF_NAMES_H

#include <stdbool.h>

#include "runtime/ckpt/safetensors.h"

/* Finds the tensor of a parameter; as st_folder_find. */
const struct st_tensor *hf_find(const struct st_folder *f, const char *param,
                                const struct st_file **file);
/* What the table calls a tensor of the folder. False if that doesn't fit into out. */
bool hf_table_name(const struct st_folder *f, const char *tensor, char *out, size_t size);
/* A tensor that is no parameter and whose absence nobody would notice: RoPE's frequencies and
 * attention's masks, which are computed here, and of a tied head a second copy. */
bool hf_passed_over(const char *tensor, bool tied);

#endif
