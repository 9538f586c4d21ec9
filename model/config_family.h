/* What differs from family to family in a config.json: which keys would change the arithmetic, the
 * keys of experts, GPT-2's own names. Private to model/config*. */
#ifndef TANDEM_MODEL_CONFIG_FAMILY_H
#define TANDEM_MODEL_CONFIG_FAMILY_H

#include "model/config_read.h"

/* c->model_type is read. Refuses keys that ask for what the family can't do. */
int config_family_check(const struct config_reader *r, const ModelConfig *c);
/* Sizes of experts; all of GPT-2's sizes. True: there is nothing more to read of the usual ones. */
int config_family_read(const struct config_reader *r, ModelConfig *c, bool *all);

/* Does the family turn pairs of a head's columns by their position? */
bool config_family_rotates(const ModelConfig *c);

#endif
