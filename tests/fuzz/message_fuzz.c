/* Any bytes as each message that comes in from outside: unpack under a cap, check, print. The first
 * byte picks the message. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "plan/spec_check.h"
#include "proto/names.h"
#include "proto/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CAP_BYTES ((size_t)4 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const ProtobufCMessageDescriptor *const all[] = {
        &submit_request__descriptor,
        &job_ref__descriptor,
        &get_job_request__descriptor,
        &list_jobs_request__descriptor,
        &set_priority_request__descriptor,
        &watch_request__descriptor,
        &logs_request__descriptor,
        &get_metrics_request__descriptor,
        &watch_metrics_request__descriptor,
        &get_trace_request__descriptor,
        &compare_request__descriptor,
        &list_checkpoints_request__descriptor,
        &checkpoint_ref__descriptor,
        &export_request__descriptor,
        &list_nodes_request__descriptor,
        &get_topology_request__descriptor,
        &drain_request__descriptor,
        &plan_request__descriptor,
        &server_info_request__descriptor,
        &list_tenants_request__descriptor,
        &get_usage_request__descriptor,
        &backup_request__descriptor,
        &worker_up__descriptor,
        &worker_down__descriptor,
        &rank_up__descriptor,
        &rank_down__descriptor,
        &probe_request__descriptor,
        &probe_reply__descriptor,
        &launch_ticket__descriptor,
        &plan__descriptor,
        &create_tenant_request__descriptor,
        &set_tenant_request__descriptor,
        &create_user_request__descriptor,
        &set_user_request__descriptor,
        &list_users_request__descriptor,
        &create_token_request__descriptor,
        &rotate_token_request__descriptor,
        &revoke_token_request__descriptor,
        &list_tokens_request__descriptor,
        &list_audit_request__descriptor,
    };
    struct error err;
    ProtobufCMessage *message;
    if (size == 0) {
        return 0;
    }
    const ProtobufCMessageDescriptor *descriptor = all[data[0] % (sizeof all / sizeof *all)];
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
    protobuf_c_message_free_unpacked(message, NULL);
    return 0;
}
