#include "server/discovery.h"

#include "base/log.h"
#include "plan/cluster_host.h"
#include "server/controller.h"
#include "server/msg.h"
#include "server/topology.h"

static void say_host(const ProbeReply *reply)
{
    const NodeInfo *host = reply->host;
    log_info("%s has %d cores, %.1f GB of memory, %zu GPUs%s%s", host->name, host->cores,
             (double)host->mem_bytes / 1e9, host->n_devices, host->n_devices ? " of type " : "",
             host->n_devices ? host->devices[0]->type : "");
    for (size_t i = 0; i < reply->n_notes; i++) {
        log_warn("%s: %s", host->name, reply->notes[i]);
    }
}

static const ProbeReply *reply_of(const struct mail *base)
{
    const struct probe_mail *m = (const struct probe_mail *)base;
    if (!m->reply || !m->reply->host || !m->reply->host->name) {
        log_warn("this host could not be looked at: %s",
                 m->reply ? "the probe says nothing of it" : m->error.text);
        return NULL;
    }
    return m->reply;
}

static void say_difference(void *where, const char *words)
{
    (void)where;
    log_warn("%s", words);
}

static int on_host(void *controller, struct mail *m, struct error *err)
{
    (void)controller;
    (void)err;
    const ProbeReply *reply = reply_of(m);
    if (reply) {
        say_host(reply);
    }
    return 0;
}

static int on_host_of_file(void *controller, struct mail *m, struct error *err)
{
    (void)err;
    const ProbeReply *reply = reply_of(m);
    if (reply) {
        say_host(reply);
        cluster_host_compare(controller_topology(controller)->cluster, reply->host, say_difference,
                             NULL);
    }
    return 0;
}

void discovery_ask(struct probing *p, bool has_file)
{
    ProbeRequest *r = msg_new(&probe_request__descriptor);
    MSG_SET(r, discover, 1);
    probing_post(p, probe_mail_new(r, NULL, NULL, has_file ? on_host_of_file : on_host));
}
