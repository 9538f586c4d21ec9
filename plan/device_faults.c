#include "plan/device_faults.h"

#include <stdio.h>

static const struct {
    int32_t xid;
    bool is_hard;
    const char *words;
} xids[] = {
    {8, false, "a kernel ran for too long"},
    {13, false, "a kernel failed, most often by the program's fault"},
    {31, false, "a page fault, most often by the program's fault"},
    {32, false, "a damaged command stream"},
    {38, false, "the driver's firmware failed"},
    {43, false, "work was given up, most often by the program's fault"},
    {45, false, "work was given up after an earlier error or a kill"},
    {48, true, "a double-bit memory error"},
    {61, false, "a breakpoint of its microcontroller"},
    {62, false, "its microcontroller halted"},
    {63, true, "a page or row of memory was retired"},
    {64, true, "a page or row of memory could not be retired"},
    {68, false, "its video engine failed"},
    {69, false, "a graphics engine class failed"},
    {74, true, "an NVLink failed"},
    {79, true, "GPU has fallen off the bus"},
    {92, false, "many single-bit memory errors"},
    {94, true, "a contained memory error"},
    {95, true, "an uncontained memory error"},
    {119, false, "its system processor does not answer"},
    {120, false, "its system processor failed"},
};

#define NUM_XIDS (sizeof xids / sizeof *xids)

static bool is_hard_xid(int32_t xid)
{
    for (size_t i = 0; i < NUM_XIDS; i++) {
        if (xids[i].xid == xid) {
            return xids[i].is_hard;
        }
    }
    return false;
}

bool device_faults_is_hard(const DeviceEvent *e)
{
    switch (e->has_kind ? e->kind : DEVICE_SLOWED) {
    case DEVICE_XID:
        return is_hard_xid(e->xid);
    case DEVICE_ECC:
    case DEVICE_ROW_FAILED:
    case DEVICE_LOST:
        return true;
    default:
        return false;
    }
}

/* "GPU has fallen off the bus"; NULL: one without words here.
 * Source: NVIDIA, XID errors (docs.nvidia.com/deploy/xid-errors). */
static const char *device_faults_xid(int32_t xid)
{
    for (size_t i = 0; i < NUM_XIDS; i++) {
        if (xids[i].xid == xid) {
            return xids[i].words;
        }
    }
    return NULL;
}

void device_faults_words(const DeviceEvent *e, char *out, size_t size)
{
    const char *words = e->message ? e->message : "";
    const char *known = device_faults_xid(e->xid);
    switch (e->has_kind ? (int)e->kind : 0) {
    case DEVICE_XID:
        snprintf(out, size, "XID %d%s%s", e->xid, known ? ": " : "", known ? known : "");
        break;
    case DEVICE_ECC:
        snprintf(out, size, "%lld memory error%s that could not be corrected", (long long)e->count,
                 e->count == 1 ? "" : "s");
        break;
    case DEVICE_ROW_PENDING:
        snprintf(out, size, "a row of its memory is to be replaced: it wants a reset");
        break;
    case DEVICE_ROW_FAILED:
        snprintf(out, size, "a row of its memory could not be replaced");
        break;
    case DEVICE_SLOWED:
        snprintf(out, size, "slowed down: %.120s (%lld C)", words, (long long)e->count);
        break;
    case DEVICE_LOST:
        snprintf(out, size, "it does not answer any more: %.120s", words);
        break;
    default:
        snprintf(out, size, "%.160s", words);
        break;
    }
}
