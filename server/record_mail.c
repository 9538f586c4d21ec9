#include "server/record_mail.h"
#include <stdlib.h>
#include <string.h>

#include <openssl/sha.h>

#include "server/controller.h"
#include "server/msg.h"

void record_asked_note(struct record_asked *a, const struct out *o)
{
    if (o->kind == OUT_LAUNCH || o->kind == OUT_PROBE) {
        struct record_pending p = {
            .mail = o->mail, .number = ++a->num, .is_probe = o->kind == OUT_PROBE};
        buf_append(&a->mail, &p, sizeof p);
    }
}

bool record_asked_take(struct record_asked *a, const struct mail *m, struct record_pending *out)
{
    struct record_pending *all = (struct record_pending *)(void *)a->mail.data;
    size_t num = a->mail.len / sizeof *all;
    for (size_t i = 0; i < num; i++) {
        if (all[i].mail == m) {
            *out = all[i];
            all[i] = all[num - 1];
            a->mail.len -= sizeof *all;
            return true;
        }
    }
    return false;
}

/* ---- put ---- */

static void put_message(struct buf *b, const ProtobufCMessage *m)
{
    size_t len = m ? protobuf_c_message_get_packed_size(m) : 0;
    record_put_number(b, (int64_t)len);
    if (len) {
        protobuf_c_message_pack(m, (uint8_t *)buf_reserve(b, len));
        b->len += len;
    }
}

static void put_error(struct buf *b, const struct error *e)
{
    record_put_number(b, e->code);
    record_put_text(b, e->text);
}

static void put_launch(struct buf *b, const struct launch_mail *m)
{
    record_put_number(b, m->ok);
    record_put_number(b, m->stuck);
    record_put_number(b, m->unread);
    record_put_bytes(b, &m->handle, sizeof m->handle);
    put_error(b, &m->error);
    record_put_text(b, m->replay.loss);
    record_put_number(b, (int64_t)m->replay.num_ups);
    for (size_t i = 0; i < m->replay.num_ups; i++) {
        put_message(b, &m->replay.ups[i]->base);
    }
}

static void put_probe(struct buf *b, const struct probe_mail *m)
{
    record_put_number(b, m->reply != NULL);
    put_message(b, m->reply ? &m->reply->base : NULL);
    put_error(b, &m->error);
}

/* Methods of administrators are left out, but for those that jobs feel: what the others carry is
 * nobody's business here. */
static bool is_recorded(const struct caller *who)
{
    static const char *const heads[] = {"Jobs/",         "Plans/",          "Worker/",
                                        "Cluster/Drain", "Cluster/Undrain", "Admin/SetQuota"};
    for (size_t i = 0; who->method && i < sizeof heads / sizeof *heads; i++) {
        if (strncmp(who->method, heads[i], strlen(heads[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* What an attempt's communicators are made from is a secret; for the same decisions its hash does
 * as well. One of a size that is refused stays of such a size. */
static void put_up(struct buf *b, const WorkerUp *up)
{
    uint8_t hash[SHA256_DIGEST_LENGTH];
    WorkerUp shown = *up;
    CommId id;
    if (up->body_case != WORKER_UP__BODY_COMM_ID) {
        put_message(b, &up->base);
        return;
    }
    id = *up->comm_id;
    if (id.id.len > 0 && id.id.len <= ATTEMPT_COMM_ID_MAX) {
        SHA256(id.id.data, id.id.len, hash);
        id.id = (ProtobufCBinaryData){.len = sizeof hash, .data = hash};
    } else {
        id.has_id = 0;
    }
    shown.comm_id = &id;
    put_message(b, &shown.base);
}

static void put_request(struct buf *b, const struct mail *m)
{
    const struct caller *who = call_caller(m->call);
    record_put_number(b, (int64_t)(uintptr_t)m->call);
    record_put_text(b, who->user);
    record_put_text(b, who->tenant);
    record_put_text(b, who->role);
    record_put_text(b, who->peer);
    record_put_text(b, who->method);
    record_put_number(b, who->job_id);
    record_put_number(b, who->attempt);
    record_put_number(b, who->token_id);
    if (m->message->descriptor == &worker_up__descriptor) {
        put_up(b, (const WorkerUp *)m->message);
    } else {
        put_message(b, m->message);
    }
}

bool record_mail_put(struct buf *b, struct record_asked *a, const struct mail *m)
{
    struct record_pending p;
    if (record_asked_take(a, m, &p)) {
        record_put(b, p.is_probe ? RECORD_PROBE : RECORD_LAUNCH);
        record_put_number(b, p.number);
        if (p.is_probe) {
            put_probe(b, (const struct probe_mail *)m);
        } else {
            put_launch(b, (const struct launch_mail *)m);
        }
    } else if (m->call && is_recorded(call_caller(m->call))) {
        record_put(b, m->message ? RECORD_REQUEST : RECORD_CLOSED);
        if (m->message) {
            put_request(b, m);
        } else {
            record_put_number(b, (int64_t)(uintptr_t)m->call);
        }
    } else {
        record_put(b, RECORD_OTHER);
        return false;
    }
    return true;
}

bool record_is_told(const struct out *o)
{
    return o->kind == OUT_LAUNCH || o->kind == OUT_PROBE || o->kind == OUT_TICKET ||
           (o->kind == OUT_FEED && ((const struct feed_mail *)o->mail)->event);
}

/* ---- take ---- */

static void *take_message(struct record_reader *r, const ProtobufCMessageDescriptor *type)
{
    size_t len;
    const uint8_t *data = record_take_bytes(r, &len);
    return protobuf_c_message_unpack(type, NULL, len, data);
}

static void take_error(struct record_reader *r, struct error *e)
{
    e->code = (enum error_code)record_take_number(r);
    record_take_text(r, e->text, sizeof e->text);
}

void record_mail_take_launch(struct record_reader *r, struct launch_mail *m)
{
    m->ok = record_take_number(r) != 0;
    m->stuck = record_take_number(r) != 0;
    m->unread = record_take_number(r) != 0;
    size_t len;
    const void *handle = record_take_bytes(r, &len);
    if (len == sizeof m->handle) {
        memcpy(&m->handle, handle, len);
    }
    take_error(r, &m->error);
    record_take_text(r, m->replay.loss, sizeof m->replay.loss);
    int64_t num = record_take_number(r);
    if (r->bad || num < 0 || num > REPLAY_RECORDS_MAX) {
        r->bad = true;
        return;
    }
    m->replay.ups = calloc((size_t)num + 1, sizeof *m->replay.ups);
    ASSERT(m->replay.ups);
    for (int64_t i = 0; i < num; i++) {
        WorkerUp *up = take_message(r, &worker_up__descriptor);
        if (!up) {
            r->bad = true;
            return;
        }
        m->replay.ups[m->replay.num_ups++] = up;
    }
}

void record_mail_take_probe(struct record_reader *r, struct probe_mail *m)
{
    bool has_reply = record_take_number(r) != 0;
    ProbeReply *reply = take_message(r, &probe_reply__descriptor);
    m->reply = has_reply ? reply : NULL;
    if (!has_reply) {
        msg_free(reply);
    }
    take_error(r, &m->error);
}
