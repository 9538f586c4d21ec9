/* Keys of a config.json, one by one. An absent key or null leaves out and has as they are. Private
 * to model/config_*. */
#ifndef TANDEM_MODEL_CONFIG_READ_H
#define TANDEM_MODEL_CONFIG_READ_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/names.h"

/* One file while it is read: the path is for messages. */
struct config_reader {
    const char *path;
    const json_t *root;
    struct error *err;
};

int config_read_int(const struct config_reader *r, const char *key, bool required, int64_t *out,
                    protobuf_c_boolean *has);
/* From any object of the file, not only the root. */
int config_read_double(const struct config_reader *r, const json_t *object, const char *key,
                       bool required, double *out, protobuf_c_boolean *has);
int config_read_bool(const struct config_reader *r, const char *key, protobuf_c_boolean *out,
                     protobuf_c_boolean *has);
/* A list of end tokens is common: the first stands for it. */
int config_read_token_id(const struct config_reader *r, const char *key, int64_t *out,
                         protobuf_c_boolean *has);
/* All of such a list; none where the key holds a number or nothing. *out: owned by the message. */
int config_read_token_ids(const struct config_reader *r, const char *key, int64_t **out,
                          size_t *num);

/* What would change the arithmetic and isn't built. */
int config_refuse(const struct config_reader *r, const char *key, const char *found,
                  const char *known);
int config_refuse_true(const struct config_reader *r, const char *key);
/* Anything but absent, null and the one value that means "not used". */
int config_refuse_unless(const struct config_reader *r, const char *key, double harmless);
int config_refuse_present(const struct config_reader *r, const char *key);

#endif
