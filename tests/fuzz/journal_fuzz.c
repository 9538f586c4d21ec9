/* A segment of a dead tandem-node's journal, as tandemd reads it: whatever a disk or a tenant's
 * process has made of it. */
#include <stddef.h>
#include <stdint.h>

#include "proto/journal.h"
#include "proto/names.h"
#include "proto/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct journal_head head;
    struct journal_record r;
    struct error err;
    size_t at = JOURNAL_HEAD_BYTES;
    if (journal_take_head(data, size, &head, &err) != 0) {
        return 0;
    }
    while (journal_take_record(data, size, &at, &r, &err) == 1) {
        ProtobufCMessage *up;
        ASSERT(r.body >= data && r.body + r.len <= data + size);
        if (text_unpack(&worker_up__descriptor, r.body, r.len, JOURNAL_BODY_MAX, &up, &err) == 0) {
            protobuf_c_message_free_unpacked(up, NULL);
        }
    }
    return 0;
}
