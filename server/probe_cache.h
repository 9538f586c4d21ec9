/* What tandem-probe has answered: by request (paths, tenant, roots), with the files that each
 * answer was read from. The cache itself looks at no file: whoever uses it has an answer confirmed
 * by the probe first. Bounded; the oldest answer makes room. On one thread. */
#ifndef TANDEM_SERVER_PROBE_CACHE_H
#define TANDEM_SERVER_PROBE_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/names.h"

#define PROBE_CACHE_SIZE 32
/* Of one answer; a larger one isn't kept. */
#define PROBE_CACHE_ANSWER_MAX_BYTES ((size_t)256 << 10)

struct probe_answer {
    char *key; /* owned; NULL = empty */
    size_t key_len;
    ProbeReply *reply;  /* owned; with its files */
    int64_t checked_ns; /* monotonic: when the probe that last saw these files was started */
};

struct probe_cache {
    struct probe_answer answers[PROBE_CACHE_SIZE];
    uint32_t next;
};

/* NULL: not there. Lives until the next add. */
struct probe_answer *probe_cache_find(struct probe_cache *c, const void *key, size_t len);
/* Takes a copy of key and of reply; an answer to the same key is replaced. */
void probe_cache_add(struct probe_cache *c, const void *key, size_t len, const ProbeReply *reply,
                     int64_t checked_ns);
void probe_cache_clear(struct probe_cache *c);

#endif
