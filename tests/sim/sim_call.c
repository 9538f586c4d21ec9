#include "tests/sim/sim_call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/sim_server.h"

struct call {
    struct sim *sim;
    int64_t generation;
    int refs;
    struct caller who;
    const struct sim_peer *peer;
    void *arg;
    bool over;
    void *data;
    void (*free_data)(void *data);
};

struct call *sim_call_new(struct sim *s, const struct caller *who, const struct sim_peer *peer,
                          void *arg)
{
    struct call *c = calloc(1, sizeof *c);
    ASSERT(c);
    *c = (struct call){.sim = s,
                       .generation = s->server->generation,
                       .refs = 1,
                       .who = *who,
                       .peer = peer,
                       .arg = arg};
    return c;
}

void sim_call_over(struct call *c)
{
    c->over = true;
}

/* Does anybody hear what is said now? */
static bool is_heard(const struct call *c)
{
    const struct sim_server *v = c->sim->server;
    return !c->over && v->up && v->generation == c->generation && !sim_disk_is_frozen(c->sim->disk);
}

struct call *call_ref(struct call *c)
{
    c->refs++;
    return c;
}

void call_unref(struct call *c)
{
    if (--c->refs > 0) {
        return;
    }
    if (c->peer->freed) {
        c->peer->freed(c->arg);
    }
    if (c->free_data) {
        c->free_data(c->data);
    }
    free(c);
}

const struct caller *call_caller(const struct call *c)
{
    return &c->who;
}

void call_reply(struct call *c, const ProtobufCMessage *reply)
{
    if (is_heard(c)) {
        c->over = true;
        c->peer->message(c->arg, reply);
    }
}

void call_fail_error(struct call *c, const struct error *err)
{
    if (is_heard(c)) {
        c->over = true;
        c->peer->end(c->arg, err->code, err->text);
    }
}

void call_fail(struct call *c, enum error_code code, const char *fmt, ...)
{
    struct error err = {.code = code};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err.text, sizeof err.text, fmt, ap);
    va_end(ap);
    call_fail_error(c, &err);
}

bool call_send(struct call *c, const ProtobufCMessage *message)
{
    if (is_heard(c)) {
        c->peer->message(c->arg, message);
        return true;
    }
    return false;
}

void call_finish(struct call *c)
{
    if (is_heard(c)) {
        c->over = true;
        c->peer->end(c->arg, ERR_OK, "");
    }
}

/* Watchers are not simulated; these are here for the linker. */
struct call_packed *call_pack(const ProtobufCMessage *message)
{
    (void)message;
    return NULL;
}

void call_open(struct call *c)
{
    (void)c;
}

bool call_send_packed(struct call *c, const struct call_packed *p)
{
    (void)c;
    (void)p;
    return false;
}

void call_packed_free(struct call_packed *p)
{
    (void)p;
}

uint32_t call_queued(struct call *c)
{
    (void)c;
    return 0;
}

uint64_t call_dropped(struct call *c)
{
    (void)c;
    return 0;
}

void call_hold(struct call *c, bool hold)
{
    (void)c;
    (void)hold;
}

bool call_is_over(struct call *c)
{
    return c->over;
}

void call_set_data(struct call *c, void *data, void (*free_fn)(void *data))
{
    c->data = data;
    c->free_data = free_fn;
}

void *call_data(struct call *c)
{
    return c->data;
}
