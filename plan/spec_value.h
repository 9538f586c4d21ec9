/* One value of a job file against its rule. Private to spec_*. */
#ifndef TANDEM_PLAN_SPEC_VALUE_H
#define TANDEM_PLAN_SPEC_VALUE_H

#include <protobuf-c/protobuf-c.h>

#include "base/error.h"
#include "plan/spec_rules.h"
#include "plan/spec_unbuilt.h"

/* at: as field_at gives it. Errors begin with path. unbuilt: NULL = what isn't built is refused,
 * else it is noted there where it can be planned. */
int spec_value_check(const char *path, const struct spec_rule *rule,
                     const ProtobufCFieldDescriptor *field, const void *at,
                     struct spec_unbuilt *unbuilt, struct error *err);

#endif
