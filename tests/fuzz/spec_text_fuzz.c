/* Any bytes as a job file: parse, check, write as JSON and YAML, read again, compare. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "plan/spec_check.h"
#include "proto/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void packed(struct buf *out, const ProtobufCMessage *message)
{
    size_t len = protobuf_c_message_get_packed_size(message);
    protobuf_c_message_pack(message, (uint8_t *)buf_reserve(out, len));
    out->len = len;
}

/* What is written reads back as the same message. */
static void check_round_trip(const ProtobufCMessage *message, const struct buf *text)
{
    struct error err;
    struct buf before = {0}, after = {0};
    ProtobufCMessage *again;
    if (text->len > TEXT_MAX_BYTES) {
        return;
    }
    ASSERT(text_parse("again", text->data, text->len, message->descriptor, &again, &err) == 0);
    packed(&before, message);
    packed(&after, again);
    ASSERT(before.len == after.len && memcmp(before.data, after.data, before.len) == 0);
    protobuf_c_message_free_unpacked(again, NULL);
    buf_free(&before);
    buf_free(&after);
}

static void check_texts(const ProtobufCMessage *message)
{
    struct buf text = {0};
    text_to_json(&text, message, 0);
    check_round_trip(message, &text);
    buf_clear(&text);
    text_to_json(&text, message, 2);
    check_round_trip(message, &text);
    buf_clear(&text);
    text_to_yaml(&text, message);
    check_round_trip(message, &text);
    buf_free(&text);
}

/* A job can be planned wherever it can be started, then with nothing that isn't built, and never
 * the other way round. True: so it is. */
static bool check_for_plan(const JobSpec *spec)
{
    struct error err;
    struct spec_unbuilt found = {0}, again = {0};
    JobSpec *copy = (JobSpec *)text_clone(&spec->base);
    bool ok = spec_check_plan(copy, &found, &err) == 0;
    if (ok) {
        check_texts(&copy->base);
        ASSERT(spec_check_plan(copy, &again, &err) == 0 && again.num == found.num);
        spec_checkpoint_interval(copy);
        spec_layout(copy);
    }
    bool plain = ok && found.num == 0;
    spec_unbuilt_free(&found);
    spec_unbuilt_free(&again);
    job_spec__free_unpacked(copy, NULL);
    return plain;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err;
    ProtobufCMessage *message;
    if (text_parse("job.yaml", (const char *)data, size, &job_spec__descriptor, &message, &err)) {
        ASSERT(err.code == ERR_INVALID_ARGUMENT && strncmp(err.text, "job.yaml", 8) == 0);
        return 0;
    }
    check_texts(message);
    JobSpec *spec = (JobSpec *)message;
    bool plain = check_for_plan(spec);
    if (spec_check(spec, &err) == 0) {
        check_texts(message);
        spec_priority(spec);
        spec_checkpoint_interval(spec);
        spec_layout(spec);
        /* What is stored is checked again by a later version. */
        ASSERT(spec_check(spec, &err) == 0);
        ASSERT(plain);
    } else {
        ASSERT(!plain);
    }
    protobuf_c_message_free_unpacked(message, NULL);
    return 0;
}
