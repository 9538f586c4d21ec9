#include "clients/cli/ls_reason.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/job.h"

static bool filled(const char *text)
{
    return text && text[0];
}

void ls_reason_fill(struct cli *cli, const struct collect *jobs)
{
    int num = 0;
    for (size_t i = jobs->num; i > 0 && num < LS_REASONS_MAX; i--) {
        Job *j = (Job *)jobs->items[i - 1];
        if (j->state != JOB_QUEUED) {
            continue;
        }
        const WhyReply *why = job_why(cli, j);
        num++;
        if (!why) {
            return; /* the list stands without it */
        }
        if (why->n_reasons > 0 && filled(why->reasons[0])) {
            free(j->message);
            j->message = strdup(why->reasons[0]);
            ASSERT(j->message);
        }
        protobuf_c_message_free_unpacked((ProtobufCMessage *)(uintptr_t)why, NULL);
    }
}

bool ls_reason_any(const struct collect *jobs)
{
    for (size_t i = 0; i < jobs->num; i++) {
        if (filled(((const Job *)jobs->items[i])->message)) {
            return true;
        }
    }
    return false;
}

const char *ls_reason_short(const Job *j, char out[LS_REASON_COLUMNS + 8])
{
    size_t len = filled(j->message) ? strcspn(j->message, "\n") : 0;
    bool cut = len > LS_REASON_COLUMNS;
    len = cut ? LS_REASON_COLUMNS - 3 : len;
    while (cut && len > 0 && ((unsigned char)j->message[len] & 0xc0) == 0x80) {
        len--; /* not within a character */
    }
    if (len > 0) {
        memcpy(out, j->message, len);
    }
    memcpy(out + len, cut ? "..." : "", cut ? 4 : 1);
    return out;
}
