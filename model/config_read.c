#include "model/config_read.h"

#include <stdio.h>
#include <stdlib.h>

int config_read_int(const struct config_reader *r, const char *key, bool required, int64_t *out,
                    protobuf_c_boolean *has)
{
    const json_t *v = json_object_get(r->root, key);
    if (!v || json_is_null(v)) {
        if (required) {
            return error_set(r->err, ERR_INVALID_ARGUMENT, "%s: %s is missing", r->path, key);
        }
        return 0;
    }
    if (!json_is_integer(v)) {
        return error_set(r->err, ERR_INVALID_ARGUMENT, "%s: %s is not a whole number", r->path,
                         key);
    }
    *out = json_integer_value(v);
    *has = 1;
    return 0;
}

/* From any object of the file, not only the root. */
int config_read_double(const struct config_reader *r, const json_t *object, const char *key,
                       bool required, double *out, protobuf_c_boolean *has)
{
    const json_t *v = json_object_get(object, key);
    if (!v || json_is_null(v)) {
        if (required) {
            return error_set(r->err, ERR_INVALID_ARGUMENT, "%s: %s is missing", r->path, key);
        }
        return 0;
    }
    if (!json_is_number(v)) {
        return error_set(r->err, ERR_INVALID_ARGUMENT, "%s: %s is not a number", r->path, key);
    }
    *out = json_number_value(v);
    *has = 1;
    return 0;
}

int config_read_bool(const struct config_reader *r, const char *key, protobuf_c_boolean *out,
                     protobuf_c_boolean *has)
{
    const json_t *v = json_object_get(r->root, key);
    if (!v || json_is_null(v)) {
        return 0;
    }
    if (!json_is_boolean(v)) {
        return error_set(r->err, ERR_INVALID_ARGUMENT, "%s: %s is not true or false", r->path, key);
    }
    *out = json_is_true(v);
    *has = 1;
    return 0;
}

int config_read_token_id(const struct config_reader *r, const char *key, int64_t *out,
                         protobuf_c_boolean *has)
{
    const json_t *v = json_object_get(r->root, key);
    if (v && json_is_array(v)) {
        v = json_array_get(v, 0);
    }
    if (!v || json_is_null(v)) {
        return 0;
    }
    if (!json_is_integer(v)) {
        return error_set(r->err, ERR_INVALID_ARGUMENT, "%s: %s is not a token id", r->path, key);
    }
    *out = json_integer_value(v);
    *has = 1;
    return 0;
}

int config_read_token_ids(const struct config_reader *r, const char *key, int64_t **out,
                          size_t *num)
{
    const json_t *list = json_object_get(r->root, key);
    size_t n = json_is_array(list) ? json_array_size(list) : 0;
    if (n == 0) {
        return 0;
    }
    *out = calloc(n, sizeof **out);
    ASSERT(*out);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v)) {
            return error_set(r->err, ERR_INVALID_ARGUMENT, "%s: %s[%zu] is not a token id", r->path,
                             key, i);
        }
        (*out)[(*num)++] = json_integer_value(v);
    }
    return 0;
}

/* ---- what would change the arithmetic and isn't built ---- */

int config_refuse(const struct config_reader *r, const char *key, const char *found,
                  const char *known)
{
    return error_set(r->err, ERR_UNIMPLEMENTED, "%s: %s %s is not supported; %s", r->path, key,
                     found, known);
}

int config_refuse_true(const struct config_reader *r, const char *key)
{
    if (json_is_true(json_object_get(r->root, key))) {
        return config_refuse(r, key, "true", "it has to be false");
    }
    return 0;
}

/* Anything but absent, null and the one value that means "not used". */
int config_refuse_unless(const struct config_reader *r, const char *key, double harmless)
{
    const json_t *v = json_object_get(r->root, key);
    if (!v || json_is_null(v) || (json_is_number(v) && json_number_value(v) == harmless)) {
        return 0;
    }
    char found[64], known[64];
    if (json_is_number(v)) {
        snprintf(found, sizeof found, "%.12g", json_number_value(v));
    } else {
        snprintf(found, sizeof found, "as it stands");
    }
    snprintf(known, sizeof known, "it has to be %.12g", harmless);
    return config_refuse(r, key, found, known);
}

int config_refuse_present(const struct config_reader *r, const char *key)
{
    const json_t *v = json_object_get(r->root, key);
    if (v && !json_is_null(v)) {
        return config_refuse(r, key, "as it stands", "it has to be null");
    }
    return 0;
}
