/* The bytes of a rank's link, cut anyhow: as tandem-node takes them from a process that runs a
 * user's model. The first byte says how they are cut. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "proto/text.h"
#include "runtime/link/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct link_decoder *d;
    struct error err;
    if (size < 1 || link_decoder_new(&d) != 0) {
        return 0;
    }
    size_t step = data[0] + 1u;
    int rc = 0;
    for (size_t at = 1; at < size && rc == 0; at += step) {
        const uint8_t *body;
        size_t len;
        rc = link_decoder_feed(d, data + at, size - at < step ? size - at : step, &err);
        while (rc == 0 && (rc = link_decoder_next(d, &body, &len, &err)) == 0 && body) {
            ProtobufCMessage *up;
            if (text_unpack(&rank_up__descriptor, body, len, LINK_MESSAGE_MAX, &up, &err) == 0) {
                protobuf_c_message_free_unpacked(up, NULL);
            }
        }
    }
    link_decoder_free(d);
    return 0;
}
