/* tandem-spawn's configuration, and its command line as words between NULs. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "server/spawn/spawn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct spawn_conf conf;
    char why[SPAWN_WHY_SIZE] = "", words[1024];
    if (size > SPAWN_CONF_MAX_BYTES) {
        return 0;
    }
    if (spawn_conf_parse(&conf, (const char *)data, size, why) == 0) {
        ASSERT(conf.min_uid >= 100 && spawn_is_name(conf.caller) && conf.jobs[0] == '/');
    }
    if (size >= sizeof words) {
        return 0;
    }
    memcpy(words, data, size);
    words[size] = 0;
    char *argv[12];
    int argc = 0;
    for (size_t at = 0; at <= size && argc < 11; at += strlen(words + at) + 1) {
        argv[argc++] = words + at;
    }
    argv[argc] = NULL;
    struct spawn_request r;
    if (spawn_request_parse(&r, argc, argv, why) == 0 && r.verb == SPAWN_KILL) {
        ASSERT(r.pid > 1 && (r.sig == 0 || r.sig == 9 || r.sig == 15));
    }
    return 0;
}
