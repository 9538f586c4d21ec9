#include "runtime/probe/watch.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "runtime/link/link.h"
#include "runtime/probe/host.h"
#include "runtime/probe/nvml.h"
#include "runtime/probe/nvml_library.h"

#define EVERY_MS 3000
#define WAIT_MS 200
#define LAST_WAITS 4 /* once stdin has ended, for what is on its way */
#define XID_AGAIN_MS 60000
#define ECC_AGAIN_MS 60000
#define SLOWED_AGAIN_MS 600000
#define SLOWED_NEW_MS 60000
#define MAX_XIDS 16 /* different ones of a device that are told apart */

/* A reason for slower clocks of our own: as hot as where it slows down. */
#define SLOW_HOT (1ull << 40)

struct told {
    int32_t xid;
    int64_t at_ms;
};

struct watched {
    int32_t index;
    nvml_handle h;
    char uuid[97];
    bool lost, has_ecc, row_pending, row_failed;
    unsigned long long ecc_before, ecc_told;
    int64_t ecc_told_ms;
    unsigned long long slow_told;
    int64_t slow_told_ms; /* 0 = never */
    struct told xids[MAX_XIDS];
    int num_xids;
};

struct watch {
    struct nvml_library lib;
    nvml_events events; /* NULL: this driver has none */
    struct watched devices[NVML_MAX_GPUS];
    int num;
    bool broken; /* nobody reads what we say */
};

/* ---- what is said ---- */

static void say(struct watch *w, const WatchUp *up)
{
    struct buf frame = {0};
    if (link_frame(&frame, &up->base, NULL) != 0 ||
        fs_write_all(STDOUT_FILENO, frame.data, frame.len) != 0) {
        w->broken = true;
    }
    buf_free(&frame);
}

static void say_note(struct watch *w, const char *text)
{
    WatchUp up = WATCH_UP__INIT;
    NodeNote note = NODE_NOTE__INIT;
    note.message = (char *)(uintptr_t)text;
    up.body_case = WATCH_UP__BODY_NOTE;
    up.note = &note;
    say(w, &up);
}

static void say_event(struct watch *w, const struct watched *d, DeviceEventKind kind, int32_t xid,
                      int64_t count, const char *words)
{
    char clean[120];
    WatchUp up = WATCH_UP__INIT;
    DeviceEvent e = DEVICE_EVENT__INIT;
    snprintf(clean, sizeof clean, "%s", words);
    nvml_clean(clean, sizeof clean);
    e.has_device = e.has_kind = 1;
    e.device = d->index;
    e.kind = kind;
    e.has_xid = kind == DEVICE_XID;
    e.xid = xid;
    e.has_count = 1;
    e.count = count;
    e.message = clean;
    e.uuid = (char *)(uintptr_t)(d->uuid[0] ? d->uuid : NULL);
    up.body_case = WATCH_UP__BODY_EVENT;
    up.event = &e;
    say(w, &up);
}

/* All GPUs of the host: who shares what with whom. */
static void say_found(struct watch *w)
{
    ProbeReply reply = PROBE_REPLY__INIT;
    WatchUp up = WATCH_UP__INIT;
    host_discover_gpus(&reply);
    up.body_case = WATCH_UP__BODY_FOUND;
    up.found = reply.host;
    say(w, &up);
    node_info__free_unpacked(reply.host, NULL);
    for (size_t i = 0; i < reply.n_notes; i++) {
        free(reply.notes[i]);
    }
    free(reply.notes);
}

/* ---- one device ---- */

/* False: it is gone, which has been said. */
static bool answers(struct watch *w, struct watched *d, int rc)
{
    if (rc != NVML_LOST && rc != NVML_RESET_REQUIRED) {
        return true;
    }
    if (!d->lost) {
        say_event(w, d, DEVICE_LOST, 0, 0, nvml_words(&w->lib, rc));
    }
    d->lost = true;
    return false;
}

static void look_at_ecc(struct watch *w, struct watched *d)
{
    unsigned long long now = 0;
    int rc = w->lib.ecc_errors
                 ? w->lib.ecc_errors(d->h, NVML_ECC_UNCORRECTED, NVML_ECC_VOLATILE, &now)
                 : -1;
    if (!answers(w, d, rc) || rc != NVML_OK) {
        return;
    }
    if (!d->has_ecc || now < d->ecc_before) {
        d->has_ecc = true;
        d->ecc_before = d->ecc_told = now;
        return;
    }
    int64_t now_ms = clock_mono_ms();
    if (now > d->ecc_told && (!d->ecc_told_ms || now_ms - d->ecc_told_ms >= ECC_AGAIN_MS)) {
        unsigned long long num = now - d->ecc_before;
        d->ecc_told = now;
        d->ecc_told_ms = now_ms;
        say_event(w, d, DEVICE_ECC, 0, num < INT32_MAX ? (int64_t)num : INT32_MAX, "");
    }
}

static void look_at_rows(struct watch *w, struct watched *d)
{
    unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
    int rc =
        w->lib.remapped ? w->lib.remapped(d->h, &corrected, &uncorrected, &pending, &failed) : -1;
    if (!answers(w, d, rc) || rc != NVML_OK) {
        return;
    }
    if (failed && !d->row_failed) {
        say_event(w, d, DEVICE_ROW_FAILED, 0, 0, "");
    }
    if (pending && !d->row_pending) {
        say_event(w, d, DEVICE_ROW_PENDING, 0, 0, "");
    }
    d->row_failed = failed != 0;
    d->row_pending = pending != 0;
}

static unsigned long long slow_reasons(const struct watch *w, const struct watched *d,
                                       unsigned *degrees)
{
    unsigned long long reasons = 0;
    unsigned limit = 0;
    *degrees = 0;
    if (!w->lib.throttle || w->lib.throttle(d->h, &reasons) != NVML_OK) {
        reasons = 0;
    }
    if (!w->lib.temperature || w->lib.temperature(d->h, NVML_SENSOR_GPU, degrees) != NVML_OK ||
        *degrees > 1000) {
        *degrees = 0;
    }
    if (*degrees && w->lib.temperature_limit &&
        w->lib.temperature_limit(d->h, NVML_LIMIT_SLOWDOWN, &limit) == NVML_OK && limit > 0 &&
        *degrees >= limit) {
        reasons |= SLOW_HOT;
    }
    return reasons & (NVML_SLOW_HARDWARE | NVML_SLOW_HEAT | NVML_SLOW_POWER | SLOW_HOT);
}

static void look_at_pace(struct watch *w, struct watched *d)
{
    unsigned degrees;
    unsigned long long reasons = slow_reasons(w, d, &degrees);
    int64_t now = clock_mono_ms(), since = now - d->slow_told_ms;
    bool is_new = (reasons & ~d->slow_told) != 0;
    if (!reasons || (d->slow_told_ms && since < (is_new ? SLOWED_NEW_MS : SLOWED_AGAIN_MS))) {
        return;
    }
    d->slow_told = reasons;
    d->slow_told_ms = now;
    say_event(w, d, DEVICE_SLOWED, 0, degrees,
              reasons & NVML_SLOW_POWER               ? "the power supply's brake"
              : reasons & (NVML_SLOW_HEAT | SLOW_HOT) ? "heat"
                                                      : "its own protection");
}

static void look(struct watch *w)
{
    for (int i = 0; i < w->num; i++) {
        struct watched *d = &w->devices[i];
        if (!d->lost) {
            look_at_ecc(w, d);
        }
        if (!d->lost) {
            look_at_rows(w, d);
        }
        if (!d->lost) {
            look_at_pace(w, d);
        }
    }
}

/* ---- events ---- */

static void take_xid(struct watch *w, struct watched *d, unsigned long long data)
{
    int32_t xid = data < INT32_MAX ? (int32_t)data : INT32_MAX;
    int64_t now = clock_mono_ms();
    int i = 0;
    while (i < d->num_xids && d->xids[i].xid != xid) {
        i++;
    }
    if (i < d->num_xids && now - d->xids[i].at_ms < XID_AGAIN_MS) {
        return;
    }
    if (i == MAX_XIDS) { /* in the place of the one that was told longest ago */
        i = 0;
        for (int k = 1; k < MAX_XIDS; k++) {
            i = d->xids[k].at_ms < d->xids[i].at_ms ? k : i;
        }
    }
    d->num_xids += i == d->num_xids;
    d->xids[i] = (struct told){xid, now};
    say_event(w, d, DEVICE_XID, xid, 0, "");
}

static void close_events(struct watch *w)
{
    if (w->events && w->lib.events_free) {
        w->lib.events_free(w->events);
    }
    w->events = NULL;
}

/* Handles of a device are one pointer, so far; nobody promises it. */
static bool is_same(const struct watch *w, const struct watched *d, nvml_handle h)
{
    char uuid[97];
    if (d->h == h || !d->uuid[0] || !w->lib.uuid || w->lib.uuid(h, uuid, sizeof uuid) != NVML_OK) {
        return d->h == h;
    }
    nvml_clean(uuid, sizeof uuid);
    return strcmp(uuid, d->uuid) == 0;
}

/* Waits a little for one. True: there was one. */
static bool wait_for_event(struct watch *w)
{
    struct nvml_event e;
    memset(&e, 0, sizeof e);
    if (!w->events) {
        usleep(WAIT_MS * 1000);
        return false;
    }
    int rc = w->lib.events_wait(w->events, &e, WAIT_MS);
    if (rc == NVML_LOST) {
        look(w); /* which? */
        usleep(WAIT_MS * 1000);
        return false;
    }
    if (rc != NVML_OK && rc != NVML_TIMEOUT) {
        char words[200];
        snprintf(words, sizeof words, "XID events can't be heard any more: %.100s",
                 nvml_words(&w->lib, rc));
        nvml_clean(words, sizeof words);
        say_note(w, words);
        close_events(w);
    }
    for (int i = 0; rc == NVML_OK && i < w->num; i++) {
        struct watched *d = &w->devices[i];
        if (!is_same(w, d, e.device)) {
            continue;
        }
        if (e.type == NVML_EVENT_XID) {
            take_xid(w, d, e.data);
        } else if (e.type == NVML_EVENT_DOUBLE_BIT) {
            look_at_ecc(w, d);
        }
    }
    return rc == NVML_OK;
}

static void open_events(struct watch *w)
{
    int num = 0;
    if (!w->lib.events_new || !w->lib.events_add || !w->lib.events_wait ||
        w->lib.events_new(&w->events) != NVML_OK) {
        w->events = NULL;
    }
    for (int i = 0; w->events && i < w->num; i++) {
        nvml_handle h = w->devices[i].h;
        bool ok =
            w->lib.events_add(h, NVML_EVENT_XID | NVML_EVENT_DOUBLE_BIT, w->events) == NVML_OK ||
            w->lib.events_add(h, NVML_EVENT_XID, w->events) == NVML_OK;
        num += ok;
    }
    if (num < w->num) {
        say_note(w, "XID events of its GPUs can't be heard: this driver doesn't tell them");
    }
    if (num == 0) {
        close_events(w);
    }
}

/* ---- the whole ---- */

static int open_devices(struct watch *w, const char *list)
{
    while (*list && w->num < NVML_MAX_GPUS) {
        char *end;
        long index = strtol(list, &end, 10);
        struct watched *d = &w->devices[w->num];
        if (end == list || index < 0 || index >= NVML_MAX_GPUS || (*end && *end != ',')) {
            log_error("\"%.80s\": no list of devices", list);
            return -1;
        }
        list = *end ? end + 1 : end;
        *d = (struct watched){.index = (int32_t)index};
        int rc = w->lib.handle((unsigned)index, &d->h);
        if (!answers(w, d, rc)) {
            continue;
        }
        if (rc != NVML_OK) { /* not allowed, or it isn't there: nothing that we can tell of it */
            char words[160];
            snprintf(words, sizeof words, "GPU %d can't be looked at: %.100s", (int)d->index,
                     nvml_words(&w->lib, rc));
            nvml_clean(words, sizeof words);
            say_note(w, words);
            continue;
        }
        if (w->lib.uuid && w->lib.uuid(d->h, d->uuid, sizeof d->uuid) == NVML_OK) {
            nvml_clean(d->uuid, sizeof d->uuid);
        } else {
            d->uuid[0] = 0;
        }
        w->num++;
    }
    return 0;
}

static bool stdin_has_ended(void)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    return poll(&p, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

static int64_t every_ms(void)
{
    const char *text = getenv("TANDEM_WATCH_MS");
    long ms = text ? strtol(text, NULL, 10) : 0;
    return ms >= 1 && ms <= 3600000 ? ms : EVERY_MS;
}

static void watch(struct watch *w)
{
    const int64_t every = every_ms();
    int64_t next = 0;
    while (!w->broken && !stdin_has_ended()) {
        if (clock_mono_ms() >= next) {
            look(w);
            next = clock_mono_ms() + every;
        }
        wait_for_event(w);
    }
    for (int i = 0; i < LAST_WAITS && wait_for_event(w); i++) {
    }
    look(w);
}

int watch_run(const char *devices)
{
    struct watch *w = calloc(1, sizeof *w);
    char why[256];
    ASSERT(w);
    say_found(w);
    if (!nvml_open(&w->lib, why)) {
        say_note(w, why[0] ? why : "there is no NVIDIA driver (libnvidia-ml.so.1)");
        free(w);
        return WATCH_HAS_SAID_WHY;
    }
    int rc = open_devices(w, devices);
    if (rc == 0 && w->num > 0) {
        open_events(w);
        watch(w);
        close_events(w);
    }
    nvml_close(&w->lib);
    free(w);
    return rc == 0 ? 0 : 2;
}
