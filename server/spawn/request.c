#include "server/spawn/spawn.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *word;
    enum spawn_verb verb;
    int argc;
} verbs[] = {
    {"check", SPAWN_CHECK, 3},
    {"node", SPAWN_NODE, 5},
    {"probe", SPAWN_PROBE, 3},
    {"kill", SPAWN_KILL, 8},
};

/* A number from 0 on, in digits alone. */
static int take(int64_t *out, const char *text, int64_t min, int64_t max, const char *what,
                char *why)
{
    size_t n = strlen(text);
    errno = 0;
    long long number = strtoll(text, NULL, 10);
    if (n == 0 || n > 19 || strspn(text, "0123456789") != n || errno || number < min ||
        number > max) {
        snprintf(why, SPAWN_WHY_SIZE, "%s: expected a number from %lld to %lld", what,
                 (long long)min, (long long)max);
        return -1;
    }
    *out = number;
    return 0;
}

static int take_attempt(struct spawn_request *r, char *const *argv, char *why)
{
    return take(&r->job, argv[3], 1, INT64_MAX, "JOB", why) == 0 &&
                   take(&r->attempt, argv[4], 1, INT32_MAX, "ATTEMPT", why) == 0
               ? 0
               : -1;
}

static int take_kill(struct spawn_request *r, char *const *argv, char *why)
{
    if (take(&r->pid, argv[5], 2, INT32_MAX, "PID", why) != 0 ||
        take(&r->start_time, argv[6], 0, INT64_MAX, "START_TIME", why) != 0 ||
        take(&r->sig, argv[7], 0, 64, "SIGNAL", why) != 0) {
        return -1;
    }
    if (r->sig != 0 && r->sig != SIGTERM && r->sig != SIGKILL) {
        snprintf(why, SPAWN_WHY_SIZE, "SIGNAL: expected 0, %d or %d", SIGTERM, SIGKILL);
        return -1;
    }
    return 0;
}

int spawn_request_parse(struct spawn_request *out, int argc, char *const *argv, char *why)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; argc >= 3 && i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(argv[1], verbs[i].word) != 0 || argc != verbs[i].argc) {
            continue;
        }
        out->verb = verbs[i].verb;
        out->user = argv[2];
        if (!spawn_is_name(out->user)) {
            snprintf(why, SPAWN_WHY_SIZE, "USER: expected a user's name");
            return -1;
        }
        if ((out->verb == SPAWN_NODE || out->verb == SPAWN_KILL) &&
            take_attempt(out, argv, why) != 0) {
            return -1;
        }
        return out->verb == SPAWN_KILL ? take_kill(out, argv, why) : 0;
    }
    snprintf(why, SPAWN_WHY_SIZE,
             "usage: tandem-spawn check USER | node USER JOB ATTEMPT | probe USER | "
             "kill USER JOB ATTEMPT PID START_TIME SIGNAL");
    return -1;
}
