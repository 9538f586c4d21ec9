/* What NCCL says, and what to do about it. */
#include <stdio.h>
#include <string.h>

#include "runtime/comm/comm_nccl.h"

void nccl_call_text(const struct nccl_comm *c, const struct comm_board_call *call, char *out,
                    size_t size)
{
    static const char *const kinds[NUM_COMM_CALLS] = {
        [COMM_CALL_ALL_REDUCE] = "all-reduce", [COMM_CALL_REDUCE_SCATTER] = "reduce-scatter",
        [COMM_CALL_ALL_GATHER] = "all-gather", [COMM_CALL_BROADCAST] = "broadcast",
        [COMM_CALL_BARRIER] = "barrier",       [COMM_CALL_SEND] = "send",
        [COMM_CALL_RECV] = "receive",          [COMM_CALL_EXCHANGE] = "exchange",
        [COMM_CALL_JOIN] = "the making",
    };
    if (c->line) {
        c->w->board->ops->call_text(c->line, call, out, size);
    } else if (call->kind == COMM_CALL_JOIN || call->kind == COMM_CALL_BARRIER) {
        snprintf(out, size, "%s of %s", kinds[call->kind], c->name);
    } else {
        snprintf(out, size, "%s of %s%s%lld %s over %s", kinds[call->kind], call->what,
                 call->what[0] ? ", " : "", (long long)call->n,
                 call->kind == COMM_CALL_EXCHANGE ? "messages" : "elements", c->name);
    }
}

static bool has(const char *text, const char *const *words)
{
    for (; *words; words++) {
        if (strcasestr(text, *words)) {
            return true;
        }
    }
    return false;
}

static const char *advice(ncclResult_t result, const char *detail)
{
    static const char *const twice[] = {"duplicate gpu", NULL};
    static const char *const shm[] = {"/dev/shm", "shared memory", "no space left", NULL};
    static const char *const peer[] = {"peer access", "p2p", "cuda ipc", "cudaIpc", NULL};
    static const char *const net[] = {"socket", "interface", "bootstrap", "connect", NULL};
    if (has(detail, twice)) {
        return "two ranks were given the same GPU: NCCL takes one rank a GPU";
    }
    if (has(detail, shm)) {
        return "/dev/shm is too small or not writable: make it larger (df /dev/shm), or set "
               "NCCL_SHM_DISABLE=1";
    }
    if (has(detail, peer)) {
        return "the GPUs can't reach each other's memory: see nvidia-smi topo -p2p r, or set "
               "NCCL_P2P_DISABLE=1";
    }
    if (has(detail, net)) {
        return "the ranks don't find each other: set NCCL_SOCKET_IFNAME to an interface that is up";
    }
    switch (result) {
    case ncclRemoteError:
        return "another rank's process is gone, or the network to it: the first one that failed "
               "says why";
    case ncclUnhandledCudaError:
        return "a CUDA call inside of NCCL failed, often for want of GPU memory; NCCL_DEBUG=INFO "
               "in tandemd's environment puts more into the ranks' logs";
    case ncclInvalidUsage:
    case ncclInvalidArgument:
        return "that is a mistake in tandem, or two versions of NCCL in one gang; NCCL_DEBUG=INFO "
               "in tandemd's environment puts more into the ranks' logs";
    default:
        return "NCCL_DEBUG=INFO in tandemd's environment puts more into the ranks' logs";
    }
}

static enum error_code code_of(ncclResult_t result)
{
    switch (result) {
    case ncclInvalidArgument:
    case ncclInvalidUsage:
        return ERR_FAILED_PRECONDITION;
    case ncclRemoteError:
        return ERR_ABORTED;
    case ncclSystemError:
        return ERR_UNAVAILABLE;
    default:
        return ERR_INTERNAL;
    }
}

/* NCCL's last words are the process's where it has no communicator to ask. */
int nccl_error(struct error *err, ncclComm_t comm, ncclResult_t result, const char *doing)
{
    char detail[256];
    const char *last = ncclGetLastError(comm);
    snprintf(detail, sizeof detail, "%s", last ? last : "");
    for (size_t len = strlen(detail); len > 0 && (unsigned char)detail[len - 1] <= ' '; len--) {
        detail[len - 1] = 0;
    }
    return error_set(err, code_of(result), "%s: NCCL: %s%s%s%s; %s", doing,
                     ncclGetErrorString(result), detail[0] ? " (" : "", detail,
                     detail[0] ? ")" : "", advice(result, detail));
}
