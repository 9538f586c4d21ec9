/* Hugging Face's config.json -> ModelConfig. What the file asks for and we can't compute (another
 * family, another activation, biases) is refused here, in words that name file and key. */
#ifndef TANDEM_MODEL_CONFIG_H
#define TANDEM_MODEL_CONFIG_H

#include <stddef.h>

#include "base/error.h"
#include "proto/names.h"

/* text: the file's content; path: for messages. *out is freed with model_config__free_unpacked. */
int config_parse(const char *path, const char *text, size_t len, ModelConfig **out,
                 struct error *err);

/* Bounds and divisibility of every size (all are at most 2^31, products fit 2^62). */
int config_check(const char *path, const ModelConfig *config, struct error *err);

/* The largest dropout that the file asks for. It changes nothing: a job has a dropout of its own.
 */
double config_dropout(const ModelConfig *config);

/* What the family's own files call a key: GPT-2's hidden_size is n_embd. For messages. */
const char *config_key(const ModelConfig *config, const char *usual);

/* The config.json that an export gets: config_json as it came, or one made from the fields. The
 * caller frees. dtype: "float32" or another torch_dtype word. */
char *config_to_json(const ModelConfig *config, const char *torch_dtype);

#endif
