/* grpc.reflection: tells any gRPC client what this server speaks, from the built-in descriptors.
 * v1 and v1alpha have the same messages. */
#include <string.h>
#include <tandem/v1/reflection.pb-c.h>

#include "server/rpc/descriptors.h"
#include "server/rpc/wire.h"

typedef Grpc__Reflection__V1alpha__ServerReflectionRequest ReflectionRequest;
typedef Grpc__Reflection__V1alpha__ServerReflectionResponse ReflectionResponse;
#define ASKS(field) GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##field
#define SAYS(field) GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##field

enum { MAX_FILES = 32, MAX_SERVICES = 32 };

static void send_not_found(struct call *c, ReflectionResponse *reply, const char *text)
{
    Grpc__Reflection__V1alpha__ErrorResponse e = GRPC__REFLECTION__V1ALPHA__ERROR_RESPONSE__INIT;
    e.has_error_code = 1;
    e.error_code = ERR_NOT_FOUND;
    e.error_message = (char *)(uintptr_t)text;
    reply->message_response_case = SAYS(ERROR_RESPONSE);
    reply->error_response = &e;
    call_send(c, &reply->base);
}

static void send_files(struct call *c, const struct descriptors *d, ReflectionResponse *reply,
                       const struct descriptor_file *file)
{
    if (!file) {
        send_not_found(c, reply, "no such file or symbol");
        return;
    }
    const struct descriptor_file *files[MAX_FILES];
    ProtobufCBinaryData data[MAX_FILES];
    size_t n = descriptors_closure(d, file, files, MAX_FILES);
    for (size_t i = 0; i < n; i++) {
        data[i] = (ProtobufCBinaryData){files[i]->len, (uint8_t *)(uintptr_t)files[i]->data};
    }
    Grpc__Reflection__V1alpha__FileDescriptorResponse f =
        GRPC__REFLECTION__V1ALPHA__FILE_DESCRIPTOR_RESPONSE__INIT;
    f.n_file_descriptor_proto = n;
    f.file_descriptor_proto = data;
    reply->message_response_case = SAYS(FILE_DESCRIPTOR_RESPONSE);
    reply->file_descriptor_response = &f;
    call_send(c, &reply->base);
}

static void send_services(struct call *c, const struct descriptors *d, ReflectionResponse *reply)
{
    Grpc__Reflection__V1alpha__ServiceResponse services[MAX_SERVICES];
    Grpc__Reflection__V1alpha__ServiceResponse *list[MAX_SERVICES];
    Grpc__Reflection__V1alpha__ListServiceResponse l =
        GRPC__REFLECTION__V1ALPHA__LIST_SERVICE_RESPONSE__INIT;
    const char *name;
    while (l.n_service < MAX_SERVICES && (name = descriptors_service(d, l.n_service))) {
        grpc__reflection__v1alpha__service_response__init(&services[l.n_service]);
        services[l.n_service].name = (char *)(uintptr_t)name;
        list[l.n_service] = &services[l.n_service];
        l.n_service++;
    }
    l.service = list;
    reply->message_response_case = SAYS(LIST_SERVICES_RESPONSE);
    reply->list_services_response = &l;
    call_send(c, &reply->base);
}

/* There are no extensions: a known type has none. */
static void send_extensions(struct call *c, const struct descriptors *d, ReflectionResponse *reply,
                            const char *type)
{
    if (!descriptors_has(d, type, DESCRIPTOR_MESSAGE)) {
        send_not_found(c, reply, "no such type");
        return;
    }
    Grpc__Reflection__V1alpha__ExtensionNumberResponse e =
        GRPC__REFLECTION__V1ALPHA__EXTENSION_NUMBER_RESPONSE__INIT;
    e.base_type_name = (char *)(uintptr_t)type;
    reply->message_response_case = SAYS(ALL_EXTENSION_NUMBERS_RESPONSE);
    reply->all_extension_numbers_response = &e;
    call_send(c, &reply->base);
}

static void on_request(void *ctx, struct call *c, const ProtobufCMessage *message)
{
    const struct descriptors *d = server_descriptors(ctx);
    ReflectionRequest *q = (ReflectionRequest *)(uintptr_t)message;
    ReflectionResponse reply = GRPC__REFLECTION__V1ALPHA__SERVER_REFLECTION_RESPONSE__INIT;
    reply.valid_host = q->host;
    reply.original_request = q;
    switch (q->message_request_case) {
    case ASKS(FILE_BY_FILENAME):
        send_files(c, d, &reply, descriptors_file(d, q->file_by_filename));
        break;
    case ASKS(FILE_CONTAINING_SYMBOL):
        send_files(c, d, &reply, descriptors_file_of(d, q->file_containing_symbol));
        break;
    case ASKS(LIST_SERVICES):
        send_services(c, d, &reply);
        break;
    case ASKS(ALL_EXTENSION_NUMBERS_OF_TYPE):
        send_extensions(c, d, &reply, q->all_extension_numbers_of_type);
        break;
    case ASKS(FILE_CONTAINING_EXTENSION):
        send_not_found(c, &reply, "there are no extensions");
        break;
    default:
        call_fail(c, ERR_INVALID_ARGUMENT, "the request asks for nothing that is known here");
    }
}

static void on_half_close(void *ctx, struct call *c)
{
    (void)ctx;
    call_finish(c);
}

#define REFLECTION(path_)                                                                          \
    {                                                                                              \
        .path = path_, .kind = METHOD_BIDI, .access = METHOD_PUBLIC,                               \
        .request = &grpc__reflection__v1alpha__server_reflection_request__descriptor,              \
        .on_message = on_request, .on_half_close = on_half_close,                                  \
    }
const struct method reflection_methods[] = {
    REFLECTION("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
    REFLECTION("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
    {0},
};
