/* Communicators of NCCL (private to comm_nccl*.c, which are compiled into the CUDA plug-in alone).
 *
 * One communicator of all ranks, made from the id, does nothing but be split: it doesn't block, so
 * that its making and each split can be left when a rank doesn't come. The parts block: one that
 * doesn't has NCCL start a thread for each call. A call of theirs only puts a kernel into a stream,
 * and may wait for peers the first time, when connections are made.
 *
 * So nobody in here waits for a device. A watchdog, one thread of a rank, looks a few times a
 * second at events before and behind the calls: how far the device came goes onto the board, and
 * where a call's deadline passes, NCCL reports an error or the gang is aborted, it fails the
 * streams and aborts all communicators, which lets the streams go on. */
#ifndef TANDEM_RUNTIME_COMM_NCCL_H
#define TANDEM_RUNTIME_COMM_NCCL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <nccl.h>

#include "kernels/cuda/device.h"
#include "runtime/comm/comm_provider.h"

#define NCCL_NAME_MAX 64
#define NCCL_TEXT_MAX 256
/* Calls of one communicator that are followed at once. Of more, those between are as good as done
 * when the next one is. */
#define NCCL_MARKS 32

/* A call on its way. */
struct nccl_mark {
    cudaEvent_t begun, ended;
    struct comm_board_call call;
};

struct nccl_message {
    bool is_send;
    enum dtype dtype;
    int32_t peer;
    int64_t n;
    void *mem; /* a send's isn't written */
};

struct nccl_comm {
    struct comm base;
    struct nccl_comm *next; /* of the world */
    struct nccl_world *w;
    ncclComm_t nccl;              /* NULL once it is aborted */
    struct comm_board_line *line; /* NULL: no board */
    char name[NCCL_NAME_MAX];
    struct stream *stream; /* of its latest call; may have been freed since */
    void *word;            /* in device memory: what barriers add up */
    uint32_t num_collectives;
    bool was_captured; /* calls of its are in a graph, where no mark can be */
    struct nccl_mark marks[NCCL_MARKS];
    int32_t first, num;          /* marks that aren't known to be done, in a ring */
    struct comm_board_call last; /* whose end was seen, or the making */
    /* The watchdog's: what it saw the device inside of, and since when. */
    uint64_t inside_turn;
    int64_t inside_since_ns, remote_since_ns;
    bool was_inside;
    /* Between group_begin and group_end. */
    bool is_grouping;
    struct nccl_message *messages;
    int32_t num_messages, max_messages;
};

struct nccl_world {
    struct comm_world base;
    struct device *dev;       /* borrowed */
    struct comm_board *board; /* borrowed; NULL = none */
    struct comm_board_line *line;
    ncclComm_t all; /* to be split; the opener's thread alone uses it. NULL once it is aborted */
    int64_t deadline_ns;
    uint64_t turns;
    /* Held inside of each call and while the watchdog looks. */
    pthread_mutex_t lock;
    struct nccl_comm *comms;
    _Atomic bool has_failed;
    enum error_code code;
    char reason[COMM_BOARD_REASON_MAX]; /* once has_failed */
    /* The watchdog. */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t wake_lock; /* of what stands below */
    pthread_cond_t wake;
    bool stop, asked_to_abort;
    char asked_reason[COMM_BOARD_REASON_MAX];
    struct nccl_comm *latest; /* that was called; NULL once it is freed */
    struct comm_board_call latest_call;
    bool is_held; /* the lock's holder is inside of that call */
};

/* "all-reduce of bucket 3 (65,536 fp32) over the shard group (data 0-3)" */
void nccl_call_text(const struct nccl_comm *c, const struct comm_board_call *call, char *out,
                    size_t size);
/* "DOING: NCCL: ...; what to do". comm: whose last words are asked for, or NULL. Always -1. */
int nccl_error(struct error *err, ncclComm_t comm, ncclResult_t result, const char *doing);

/* Everything fails from now on, the other ranks' too: the gang's reason, which is somebody else's
 * where the gang is aborted already, is set in w. */
void nccl_fail(struct nccl_world *w, enum error_code code, int32_t culprit, const char *reason);
/* Why w has failed, behind what the caller was doing. Always -1. */
int nccl_failure(struct nccl_world *w, const char *doing, struct error *err);
/* Is the gang aborted, by whomever? Then w has failed from now on. */
bool nccl_hear_abort(struct nccl_world *w);

/* Takes marks off that are done. -1: the device has failed. */
int nccl_pop_marks(struct nccl_comm *c, cudaError_t *error);
int nccl_watch(struct nccl_world *w, struct error *err);
void nccl_unwatch(struct nccl_world *w);
void nccl_wake(struct nccl_world *w);

extern const struct comm_ops nccl_comm_ops;
void nccl_comm_free(struct comm *base);
/* What the plug-in offers. */
extern const struct comm_provider comm_nccl_provider;

#endif
