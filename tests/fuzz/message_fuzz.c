/* Any bytes as each message that comes in from outside: unpack under a cap, check, print. The first
 * byte picks the message. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "plan/cluster.h"
#include "plan/params.h"
#include "plan/spec_check.h"
#include "proto/names.h"
#include "proto/text.h"
#include "tandem/v1/health.pb-c.h"
#include "tandem/v1/reflection.pb-c.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CAP_BYTES ((size_t)4 << 20)

/* The request of every method of every service, and what else comes in from other processes. */
static const ProtobufCServiceDescriptor *const services[] = {
    &tandem__v1__jobs__descriptor,
    &tandem__v1__runs__descriptor,
    &tandem__v1__plans__descriptor,
    &tandem__v1__checkpoints__descriptor,
    &tandem__v1__cluster__descriptor,
    &tandem__v1__admin__descriptor,
    &tandem__v1__worker__descriptor,
    &grpc__health__v1__health__descriptor,
    &grpc__reflection__v1alpha__server_reflection__descriptor,
};
static const ProtobufCMessageDescriptor *const others[] = {
    &worker_down__descriptor,   &rank_up__descriptor,     &rank_down__descriptor,
    &probe_request__descriptor, &probe_reply__descriptor, &launch_ticket__descriptor,
    &plan__descriptor,          &watch_up__descriptor,
};

static const ProtobufCMessageDescriptor *message_of(unsigned i)
{
    unsigned num = sizeof others / sizeof *others;
    for (size_t k = 0; k < sizeof services / sizeof *services; k++) {
        num += services[k]->n_methods;
    }
    i %= num;
    for (size_t k = 0; k < sizeof services / sizeof *services; k++) {
        if (i < services[k]->n_methods) {
            return services[k]->methods[i].input;
        }
        i -= services[k]->n_methods;
    }
    return others[i];
}

/* As the server does before it plans. */
static void check_plan_request(PlanRequest *request)
{
    struct error err;
    struct spec_unbuilt unbuilt = {0};
    if (request->spec && spec_check_plan(request->spec, &unbuilt, &err) == 0 && request->cluster) {
        cluster_check("cluster", request->cluster, &err);
    }
    spec_unbuilt_free(&unbuilt);
}

/* As a rank does with the plan that it gets: a table or an error. */
static void check_plan(const Plan *plan)
{
    for (size_t i = 0; i < plan->n_stages && i < 4; i++) {
        struct param_table table;
        struct error err;
        if (params_expand(plan, (int32_t)i, &table, &err) == 0) {
            params_free(&table);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    ProtobufCMessage *message;
    if (size == 0) {
        return 0;
    }
    const ProtobufCMessageDescriptor *descriptor = message_of(data[0]);
    if (text_unpack(descriptor, data + 1, size - 1, CAP_BYTES, &message, &err)) {
        ASSERT(err.code == ERR_INVALID_ARGUMENT);
        return 0;
    }
    struct buf text = {0};
    text_to_json(&text, message, 0);
    buf_clear(&text);
    text_to_yaml(&text, message);
    buf_free(&text);
    ProtobufCMessage *copy = text_clone(message);
    ASSERT(text_check_message(copy, size, &err) == 0);
    protobuf_c_message_free_unpacked(copy, NULL);
    if (descriptor == &submit_request__descriptor && ((SubmitRequest *)message)->spec) {
        spec_check(((SubmitRequest *)message)->spec, &err);
    }
    if (descriptor == &plan_request__descriptor) {
        check_plan_request((PlanRequest *)message);
    }
    if (descriptor == &plan__descriptor) {
        check_plan((const Plan *)message);
    }
    protobuf_c_message_free_unpacked(message, NULL);
    return 0;
}
