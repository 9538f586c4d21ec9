/* server/world.h in the simulation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"
#include "tests/sim/sim_check.h"
#include "tests/sim/sim_client.h"
#include "tests/sim/sim_node.h"
#include "tests/sim/sim_server.h"

static int64_t mono_ms(void *ctx)
{
    return sim_server_mono_ms(ctx);
}

static int64_t wall_us(void *ctx)
{
    const struct sim *s = ctx;
    return s->server->wall_0_us + s->now_us;
}

/* The secret is its own hash: nobody here guesses. */
static int make_token(void *ctx, char token[AUTH_TOKEN_SIZE], uint8_t sha256[HASH_BYTES],
                      struct error *err)
{
    (void)err;
    struct sim *s = ctx;
    for (int i = 0; i < HASH_BYTES; i += 8) {
        uint64_t word = sim_rng_u64(&s->rng);
        memcpy(sha256 + i, &word, sizeof word);
    }
    for (int i = 0; i < HASH_BYTES; i++) {
        snprintf(token + 2 * i, 3, "%02x", sha256[i]);
    }
    return 0;
}

static void add_token(void *ctx, int64_t job, int32_t attempt, const uint8_t sha256[HASH_BYTES])
{
    struct sim_server *v = ((struct sim *)ctx)->server;
    if (v->num_tokens == v->cap_tokens) {
        v->cap_tokens = v->cap_tokens ? 2 * v->cap_tokens : 64;
        v->tokens = realloc(v->tokens, v->cap_tokens * sizeof *v->tokens);
        ASSERT(v->tokens);
    }
    struct sim_token *t = &v->tokens[v->num_tokens++];
    t->job = job;
    t->attempt = attempt;
    memcpy(t->sha256, sha256, HASH_BYTES);
}

static bool exists(void *ctx, const char *path)
{
    return sim_node_file_exists(ctx, path);
}

/* ---- the probe ---- */

static void drop_probe(struct sim *s, void *arg, int64_t generation)
{
    (void)s;
    (void)generation;
    mail_free(arg);
}

static void probed(struct sim *s, void *arg, int64_t generation)
{
    struct probe_mail *m = arg;
    if (!s->server->up || s->server->generation != generation) {
        mail_free(&m->mail);
        return;
    }
    m->reply = (ProbeReply *)text_clone(&sim_client_facts()->base);
    m->mail.run = m->then;
    mailbox_post(controller_mailbox(s->server->app.controller), &m->mail.node);
}

/* ---- what is committed goes out ---- */

static void deliver(void *ctx, struct out *o)
{
    struct sim *s = ctx;
    if (sim_disk_is_frozen(s->disk)) {
        return; /* said by a dead program */
    }
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
        launching_post(s->server->launching, (struct launch_mail *)o->mail);
        o->mail = NULL;
        break;
    case OUT_FEED:
        sim_check_feed(s, (const struct feed_mail *)o->mail);
        break;
    case OUT_TICKET:
        sim_node_ticket(s, ((struct launch_mail *)o->mail)->handle.pid,
                        ((struct launch_mail *)o->mail)->ticket);
        break;
    case OUT_LEASE:
        lease_add(s->server->lease, o->call);
        break;
    case OUT_UNLEASE:
        lease_remove(s->server->lease, o->call);
        break;
    case OUT_THEN:
        o->mail->run(NULL, o->mail, NULL);
        break;
    case OUT_PROBE:
        sim_after(s, sim_rng_delay(&s->rng, 1000, 2000000), probed, drop_probe, o->mail,
                  s->server->generation);
        o->mail = NULL;
        break;
    }
}

struct world sim_world(struct sim *s)
{
    return (struct world){.ctx = s,
                          .mono_ms = mono_ms,
                          .wall_us = wall_us,
                          .busy_ms = mono_ms,
                          .make_token = make_token,
                          .add_token = add_token,
                          .exists = exists,
                          .deliver = deliver};
}
