/* tandem-rank that comes to harm in a collective of one's choice: linked with
 * --wrap=host_call_run,--wrap=comm_host_open.
 *
 *   STOP_RANK=R STOP_AT=TEXT   when rank R comes to a call whose text has TEXT in it,
 *   STOP_COUNT=N               for the Nth time,
 *   STOP_HOW=stop|kill|hang    it stops itself, kills itself, or never goes on with it
 *   STOP_DEADLINE_MS=N         deadline of collectives, of all ranks */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/comm/comm_host_group.h"

int __real_host_call_run(void *args, struct error *err);
int __wrap_host_call_run(void *args, struct error *err);
int __real_comm_host_open(struct comm_host_world **out, int fd, int32_t rank, int32_t num_ranks,
                          int64_t deadline_ms, struct error *err);
int __wrap_comm_host_open(struct comm_host_world **out, int fd, int32_t rank, int32_t num_ranks,
                          int64_t deadline_ms, struct error *err);

static const char *word(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value ? value : otherwise;
}

int __wrap_comm_host_open(struct comm_host_world **out, int fd, int32_t rank, int32_t num_ranks,
                          int64_t deadline_ms, struct error *err)
{
    int64_t own_ms = atoll(word("STOP_DEADLINE_MS", "0"));
    return __real_comm_host_open(out, fd, rank, num_ranks, own_ms ? own_ms : deadline_ms, err);
}

static void come_to_harm(const char *how)
{
    if (strcmp(how, "hang") == 0) {
        for (;;) {
            pause();
        }
    }
    /* To this thread: it goes no further. */
    pthread_kill(pthread_self(), strcmp(how, "kill") == 0 ? SIGKILL : SIGSTOP);
}

int __wrap_host_call_run(void *args, struct error *err)
{
    static _Atomic int times;
    const struct host_call *c = args;
    const struct host_group *g = c->group;
    char text[COMM_HOST_CALL_TEXT_MAX];
    struct segment_call line = {.kind = c->kind, .dtype = c->dtype, .op = c->op, .n = c->n};
    memcpy(line.what, c->what, sizeof line.what);
    host_call_text(&line, g->name, text);
    if (g->base.size > 1 && g->world_rank == atoi(word("STOP_RANK", "-1")) &&
        strstr(text, word("STOP_AT", "nothing")) &&
        atomic_fetch_add(&times, 1) + 1 == atoi(word("STOP_COUNT", "1"))) {
        come_to_harm(word("STOP_HOW", "stop"));
    }
    return __real_host_call_run(args, err);
}
