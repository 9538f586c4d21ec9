/* Any bytes as a config.json. What the reader takes has to hold its own bounds, has to be plannable
 * arithmetic, and has to come back from the export's text as the same model. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/config.h"
#include "model/family.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ModelConfig *c, *again;
    struct error err;
    if (config_parse("config.json", (const char *)data, size, &c, &err) != 0) {
        return 0;
    }
    ASSERT(config_check("config.json", c, NULL) == 0);
    ASSERT(family_num_params(c) > 0 && family_flops_per_token(c, 1) > 0);
    char *text = config_to_json(c, "float32");
    ASSERT(config_parse("export", text, strlen(text), &again, &err) == 0);
    ASSERT(family_num_params(again) == family_num_params(c));
    ASSERT(again->rope_theta == c->rope_theta && again->rms_norm_eps == c->rms_norm_eps);
    ASSERT((again->rope_scaling != NULL) == (c->rope_scaling != NULL));
    free(text);
    model_config__free_unpacked(again, NULL);
    model_config__free_unpacked(c, NULL);
    return 0;
}
