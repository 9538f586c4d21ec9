/* Whole numbers that have names in text: which enum gives them. */
#include "proto/names.h"
#include "proto/text.h"

const ProtobufCEnumDescriptor *text_names(const ProtobufCFieldDescriptor *field)
{
    static const struct {
        const ProtobufCMessageDescriptor *message;
        const char *field;
        const ProtobufCEnumDescriptor *names;
    } named[] = {{&parallel_spec__descriptor, "zero_stage", &zero_name__descriptor}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (protobuf_c_message_descriptor_get_field_by_name(named[i].message, named[i].field) ==
            field) {
            return named[i].names;
        }
    }
    return NULL;
}
