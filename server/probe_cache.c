#include "server/probe_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "proto/text.h"
#include "server/msg.h"

struct probe_answer *probe_cache_find(struct probe_cache *c, const void *key, size_t len)
{
    for (int i = 0; i < PROBE_CACHE_SIZE; i++) {
        struct probe_answer *a = &c->answers[i];
        if (a->key && a->key_len == len && memcmp(a->key, key, len) == 0) {
            return a;
        }
    }
    return NULL;
}

static void clear(struct probe_answer *a)
{
    free(a->key);
    msg_free(a->reply);
    memset(a, 0, sizeof *a);
}

void probe_cache_add(struct probe_cache *c, const void *key, size_t len, const ProbeReply *reply,
                     int64_t checked_ns)
{
    struct probe_answer *a = probe_cache_find(c, key, len);
    if (a) {
        clear(a);
    }
    if (probe_reply__get_packed_size(reply) + len > PROBE_CACHE_ANSWER_MAX_BYTES) {
        return;
    }
    if (!a) {
        a = &c->answers[c->next++ % PROBE_CACHE_SIZE];
        clear(a);
    }
    a->key = malloc(len + 1);
    ASSERT(a->key);
    memcpy(a->key, key, len);
    a->key_len = len;
    a->reply = (ProbeReply *)text_clone(&reply->base);
    a->checked_ns = checked_ns;
}

void probe_cache_clear(struct probe_cache *c)
{
    for (int i = 0; i < PROBE_CACHE_SIZE; i++) {
        clear(&c->answers[i]);
    }
}
