#include "server/world_real.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "server/audit.h"

static int64_t mono_ms(void *ctx)
{
    (void)ctx;
    return clock_mono_ms();
}

static int64_t wall_us(void *ctx)
{
    (void)ctx;
    return clock_wall_us();
}

static int64_t busy_ms(void *ctx)
{
    (void)ctx;
    return clock_thread_ms();
}

static int make_token(void *ctx, char token[AUTH_TOKEN_SIZE], uint8_t sha256[HASH_BYTES],
                      struct error *err)
{
    (void)ctx;
    return auth_make_token(token, sha256, err);
}

static void add_token(void *ctx, int64_t job, int32_t attempt, const uint8_t sha256[HASH_BYTES])
{
    auth_add_attempt(((struct world_real *)ctx)->auth, job, attempt, sha256);
}

static int still_allowed(void *ctx, const struct caller *caller, enum method_access access,
                         struct error *err)
{
    return auth_still_allowed(((struct world_real *)ctx)->auth, caller, access, err);
}

static void refused(void *ctx, const struct caller *caller)
{
    audit_refusal(((struct world_real *)ctx)->audit, caller, caller->method, caller->peer,
                  "denied");
}

static bool exists(void *ctx, const char *path)
{
    (void)ctx;
    return fs_exists(path);
}

static bool no_room(void *ctx, char *why, size_t size)
{
    return room_is_out(((struct world_real *)ctx)->room, why, size);
}

/* The ticket is smaller than what a pipe holds: this never blocks. */
static void write_ticket(struct launch_mail *m)
{
    size_t len = launch_ticket__get_packed_size(m->ticket);
    uint8_t *data = malloc(len);
    ASSERT(data);
    launch_ticket__pack(m->ticket, data);
    fs_write_all(m->ticket_fd, data, len);
    free(data);
    close(m->ticket_fd);
    m->ticket_fd = -1;
}

static void deliver(void *ctx, struct out *o)
{
    struct world_real *w = ctx;
    struct mail *mail = o->mail;
    switch (o->kind) {
    case OUT_REPLY:
        call_reply(o->call, o->message);
        break;
    case OUT_SEND:
        call_send(o->call, o->message);
        break;
    case OUT_END:
        call_fail_error(o->call, o->error);
        break;
    case OUT_LAUNCH:
        o->mail = NULL;
        launching_post(w->launching, (struct launch_mail *)mail);
        break;
    case OUT_FEED:
        o->mail = NULL;
        feed_post(w->feed, (struct feed_mail *)mail);
        break;
    case OUT_TICKET:
        write_ticket((struct launch_mail *)mail);
        break;
    case OUT_LEASE:
        lease_add(w->lease, o->call);
        break;
    case OUT_UNLEASE:
        lease_remove(w->lease, o->call);
        break;
    case OUT_PROBE:
        o->mail = NULL;
        probing_post(w->probing, (struct probe_mail *)mail);
        break;
    case OUT_THEN:
        mail->run(NULL, mail, NULL);
        break;
    }
}

struct world world_real(struct world_real *parts)
{
    return (struct world){.ctx = parts,
                          .mono_ms = mono_ms,
                          .wall_us = wall_us,
                          .busy_ms = busy_ms,
                          .make_token = make_token,
                          .add_token = add_token,
                          .still_allowed = still_allowed,
                          .refused = refused,
                          .exists = exists,
                          .no_room = no_room,
                          .deliver = deliver};
}
