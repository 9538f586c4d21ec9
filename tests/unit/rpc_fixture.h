/* What the tests of the gRPC side share: a small server of three methods over TCP and two socket
 * files, and calls to it. */
#ifndef TANDEM_TESTS_UNIT_RPC_FIXTURE_H
#define TANDEM_TESTS_UNIT_RPC_FIXTURE_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "proto/names.h"
#include "proto/rpc_client.h"
#include "server/rpc/server.h"

enum { MAX_KEPT = 1024, WAIT_MS = 60000, HOLD_AT = 100000 };

struct fixture {
    struct server *server;
    char target[64];
    char dir[64];
    char unix_target[128];
    pthread_mutex_t lock;
    struct call *watchers[MAX_KEPT]; /* owned references; guarded by lock */
    int num_watchers;
    struct call *unanswered; /* owned reference; guarded by lock */
    atomic_int num_closed;
    atomic_int num_messages;
    atomic_int num_half_closed;
    atomic_int num_authenticated;
    atomic_bool token_revoked;
    atomic_bool revoke_while_asked; /* the token is revoked in the middle of the next look-up */
};

void rpc_start_server(struct fixture *f, const char *listen);
/* A server that can stop and come back: at an address that nobody else gets meanwhile, as a socket
 * of ours is bound to it that doesn't listen. Returns that socket. */
int rpc_start_kept_server(struct fixture *f, char address[64]);
int rpc_setup(void **state);
int rpc_teardown(void **state);
void rpc_drop_watchers(struct fixture *f);
struct rpc_channel *rpc_dial(const char *target, const char *token);
/* The code; on ERR_OK *user_or_text holds the caller's name as the server saw it. */
enum error_code rpc_get_job(struct rpc_channel *c, const char *job, int64_t deadline_ms,
                            char text[ERROR_TEXT_MAX]);
struct rpc_stream *rpc_open_watch(struct rpc_channel *c);
struct call *rpc_watcher(struct fixture *f, int i);
int rpc_num_watchers(struct fixture *f);
int rpc_recv_watch(struct rpc_stream *s, int64_t timeout_ms, struct error *err);
enum error_code rpc_call_path(struct rpc_channel *c, const char *path, struct error *err);

/* What the server is made of, for servers of other kinds. */
int rpc_authenticate(void *ctx, const char *bearer, bool unix_socket, const char *peer,
                     const struct method *method, struct caller *caller, struct error *err);
extern const struct method rpc_test_methods[];

#define await(cond)                                                                                \
    do {                                                                                           \
        int64_t until_ = clock_mono_ms() + WAIT_MS;                                                \
        while (!(cond)) {                                                                          \
            assert_true(clock_mono_ms() < until_);                                                 \
            clock_sleep_ms(1);                                                                     \
        }                                                                                          \
    } while (0)

#endif
