#include "runtime/node/health.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/log.h"
#include "plan/device_faults.h"
#include "proto/text.h"
#include "runtime/comm/comm_host.h"
#include "runtime/link/link.h"
#include "runtime/probe/watch.h"

/* What a driver takes to come up that isn't kept running. */
#define FOUND_MS 10000
#define LAST_WORDS_MS 2500
#define GONE_MS 500
#define CAUSE_MS 30000
#define AGAIN_MS 30000
#define STARTS_MAX 4
/* A WatchUp in memory; more is nonsense. */
#define MESSAGE_MAX_BYTES ((size_t)1 << 20)
/* What an attempt hears of its devices at most, of faults and of the rest: a hot one has much to
 * say in a month, and must not drown a fault. */
#define EVENTS_MAX 200

struct health {
    struct health_options options;
    char node[80];
    int32_t num_ranks;
    int32_t *devices; /* [num_ranks] */
    struct pin *pins; /* [num_ranks] */
    NodeInfo *found;  /* NULL: not told (yet) */
    pid_t pid;        /* 0: not running, or reaped */
    int pid_fd, in_fd, out_fd;
    struct link_decoder *decoder;
    bool finishing;
    int num_starts;
    int64_t again_at_ms; /* 0 = it isn't to be started again */
    int num_events[2];   /* of faults in [1] */
    int num_notes;
    /* What may be why ranks die. */
    bool cause_is_hard;
    int64_t cause_ms;
    char cause[320];
};

/* ---- the process ---- */

static void say_note(struct health *h, const char *words)
{
    log_warn("%s", words);
    h->options.on_note(h->options.arg, words);
}

static int spawn(struct health *h, const char *program, char *list, int in, int out)
{
    char *argv[] = {(char *)(uintptr_t)program, (char[]){"--watch"}, list, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_init(&actions);
    int rc = child_attributes(&attr, POSIX_SPAWN_SETPGROUP);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    rc = rc ? rc : posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    rc = rc ? rc : posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    h->num_starts++;
    rc = rc ? rc : posix_spawn(&h->pid, program, &actions, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&actions);
    h->pid = rc ? 0 : h->pid;
    return rc;
}

/* "0,1,5": each of them once. */
static void list_devices(const struct health *h, char *out, size_t size)
{
    size_t len = 0;
    out[0] = 0;
    for (int32_t i = 0; i < h->num_ranks && len + 16 < size; i++) {
        bool is_first = true;
        for (int32_t k = 0; k < i; k++) {
            is_first = is_first && h->devices[k] != h->devices[i];
        }
        if (is_first) {
            len +=
                (size_t)snprintf(out + len, size - len, "%s%d", len ? "," : "", (int)h->devices[i]);
        }
    }
}

static int open_watch(struct health *h, struct error *err)
{
    char program[PATH_MAX], list[16 * (COMM_HOST_MAX_RANKS + 1)];
    int in[2], out[2];
    if (!fs_join(program, sizeof program, h->options.bin_dir, "tandem-probe")) {
        return error_set(err, ERR_INVALID_ARGUMENT, "path is too long");
    }
    list_devices(h, list, sizeof list);
    if (pipe2(in, O_CLOEXEC) != 0) {
        return error_errno(err, errno, "make a pipe");
    }
    if (pipe2(out, O_CLOEXEC) != 0) {
        int errnum = errno;
        close(in[0]);
        close(in[1]);
        return error_errno(err, errnum, "make a pipe");
    }
    int rc = spawn(h, program, list, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    h->in_fd = in[1];
    h->out_fd = out[0];
    if (rc) {
        return error_errno(err, rc, "start %s", program);
    }
    h->pid_fd = (int)syscall(SYS_pidfd_open, h->pid, 0);
    int flags = fcntl(h->out_fd, F_GETFL);
    if (h->pid_fd < 0 || flags < 0 || fcntl(h->out_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        return error_errno(err, errno, "watch pid %d", (int)h->pid);
    }
    return 0;
}

static void close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

void health_gone(struct health *h, pid_t pid, int status)
{
    if (!h || pid != h->pid) {
        return;
    }
    h->pid = 0;
    if (h->finishing || (WIFEXITED(status) && WEXITSTATUS(status) == WATCH_HAS_SAID_WHY)) {
        return;
    }
    bool again = h->num_starts < STARTS_MAX;
    int64_t wait_ms = h->options.again_ms ? h->options.again_ms : AGAIN_MS;
    char words[160];
    snprintf(words, sizeof words,
             "the health of GPUs isn't looked at %s: tandem-probe ended by %s %d",
             again ? "for a while" : "any more", WIFSIGNALED(status) ? "signal" : "code",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    say_note(h, words);
    h->again_at_ms = again ? clock_mono_ms() + wait_ms : 0;
}

/* Kills it if it still runs, and reaps it if it lets itself be reaped soon. */
static void end_process(struct health *h)
{
    int status;
    if (h->pid && h->pid_fd >= 0) {
        struct pollfd p = {.fd = h->pid_fd, .events = POLLIN};
        syscall(SYS_pidfd_send_signal, h->pid_fd, SIGKILL, NULL, 0);
        poll(&p, 1, GONE_MS);
    } else if (h->pid) {
        kill(h->pid, SIGKILL); /* ours, and not reaped */
    }
    if (h->pid && waitpid(h->pid, &status, WNOHANG) == h->pid) {
        h->pid = 0;
    }
}

/* ---- what it says ---- */

static int32_t rank_of(const struct health *h, int32_t device)
{
    for (int32_t i = 0; i < h->num_ranks; i++) {
        if (h->devices[i] == device) {
            return i;
        }
    }
    return -1;
}

static void keep_cause(struct health *h, const DeviceEvent *e, int32_t rank)
{
    char words[200];
    bool is_hard = device_faults_is_hard(e);
    if (!is_hard && (e->kind != DEVICE_XID || h->cause_is_hard)) {
        return;
    }
    device_faults_words(e, words, sizeof words);
    h->cause_is_hard = is_hard;
    h->cause_ms = clock_mono_ms();
    snprintf(h->cause, sizeof h->cause, "GPU %d of %s (rank %d): %s; ", (int)e->device, h->node,
             (int)rank, words);
}

static void take_event(struct health *h, DeviceEvent *e)
{
    char words[200];
    int32_t rank = e->has_device ? rank_of(h, e->device) : -1;
    if (rank < 0 || !e->has_kind) {
        return;
    }
    int num = ++h->num_events[device_faults_is_hard(e)];
    if (num > EVENTS_MAX) {
        if (num == EVENTS_MAX + 1) {
            say_note(h, "more news of this kind of the attempt's GPUs is left out");
        }
        return;
    }
    device_faults_words(e, words, sizeof words);
    log_warn("GPU %d (rank %d): %s", (int)e->device, (int)rank, words);
    keep_cause(h, e, rank);
    free(e->node);
    e->node = strdup(h->node);
    ASSERT(e->node);
    h->options.on_event(h->options.arg, e);
}

static void take_message(struct health *h, WatchUp *up)
{
    switch (up->body_case) {
    case WATCH_UP__BODY_FOUND:
        if (!h->found) {
            h->found = up->found;
            up->found = NULL;
            up->body_case = WATCH_UP__BODY__NOT_SET;
        }
        break;
    case WATCH_UP__BODY_EVENT:
        take_event(h, up->event);
        break;
    case WATCH_UP__BODY_NOTE:
        if (up->note->message && h->num_notes++ < EVENTS_MAX) {
            char words[240];
            snprintf(words, sizeof words, "health of GPUs: %.200s", up->note->message);
            say_note(h, words);
        }
        break;
    default:
        break;
    }
}

/* False: nothing that comes from there can be believed any more. */
static bool take_bytes(struct health *h, const char *bytes, size_t len)
{
    const uint8_t *body;
    size_t body_len;
    struct error err;
    if (link_decoder_feed(h->decoder, bytes, len, &err) != 0) {
        return false;
    }
    while (link_decoder_next(h->decoder, &body, &body_len, &err) == 0) {
        ProtobufCMessage *up;
        if (!body) {
            return true;
        }
        if (text_unpack(&watch_up__descriptor, body, body_len, MESSAGE_MAX_BYTES, &up, &err) != 0) {
            return false;
        }
        take_message(h, (WatchUp *)up);
        protobuf_c_message_free_unpacked(up, NULL);
    }
    return false;
}

int health_fd(const struct health *h)
{
    return h ? h->out_fd : -1;
}

void health_take(struct health *h)
{
    char bytes[16384];
    if (!h || h->out_fd < 0) {
        return;
    }
    ssize_t n = read(h->out_fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n > 0 && take_bytes(h, bytes, (size_t)n)) {
        return;
    }
    if (n > 0) {
        say_note(h, "the health of GPUs isn't looked at any more: tandem-probe says nonsense");
        h->finishing = true;
        end_process(h);
    }
    close_fd(&h->out_fd);
}

/* Until it has ended, or what is waited for is there. */
static void listen(struct health *h, int64_t most_ms, bool for_found)
{
    int64_t until = clock_mono_ms() + most_ms;
    while (h->out_fd >= 0 && !(for_found && h->found)) {
        struct pollfd p = {.fd = h->out_fd, .events = POLLIN};
        int64_t left = until - clock_mono_ms();
        if (left <= 0 || (poll(&p, 1, (int)left) < 0 && errno != EINTR)) {
            return;
        }
        health_take(h);
    }
}

/* ---- the whole ---- */

static void find_pins(struct health *h, int threads)
{
    const char *sysfs = getenv("TANDEM_SYSFS");
    unsigned char allowed[PIN_CPUS / 8];
    pin_allowed(allowed);
    for (int32_t i = 0; i < h->num_ranks; i++) {
        pin_find(&h->pins[i], sysfs ? sysfs : "/sys", h->found, h->devices[i], threads, allowed);
        log_info("rank %d: %s", (int)i, h->pins[i].words);
    }
}

static void start_watch(struct health *h)
{
    struct error err = {0};
    if (open_watch(h, &err) != 0) {
        char words[240];
        snprintf(words, sizeof words, "the health of GPUs isn't looked at: %.150s", err.text);
        say_note(h, words);
        close_fd(&h->out_fd);
    }
}

void health_tick(struct health *h)
{
    if (!h || h->finishing || !h->again_at_ms || clock_mono_ms() < h->again_at_ms) {
        return;
    }
    h->again_at_ms = 0;
    close_fd(&h->in_fd);
    close_fd(&h->out_fd);
    close_fd(&h->pid_fd);
    link_decoder_free(h->decoder);
    ASSERT(link_decoder_new(&h->decoder) == 0);
    start_watch(h);
}

struct health *health_start(const struct health_options *options)
{
    const Plan *plan = options->plan;
    if (!plan->backend || strcmp(plan->backend, "cuda") != 0 || plan->n_placement == 0 ||
        plan->n_placement > COMM_HOST_MAX_RANKS) {
        return NULL;
    }
    struct health *h = calloc(1, sizeof *h);
    ASSERT(h);
    h->options = *options;
    h->options.plan = NULL;
    h->pid_fd = h->in_fd = h->out_fd = -1;
    h->num_ranks = (int32_t)plan->n_placement;
    h->devices = calloc(plan->n_placement, sizeof *h->devices);
    h->pins = calloc(plan->n_placement, sizeof *h->pins);
    ASSERT(h->devices && h->pins && link_decoder_new(&h->decoder) == 0);
    snprintf(h->node, sizeof h->node, "%.64s",
             plan->placement[0]->node ? plan->placement[0]->node : "this host");
    for (int32_t i = 0; i < h->num_ranks; i++) {
        h->devices[i] = plan->placement[i]->device;
    }
    start_watch(h);
    listen(h, options->found_ms ? options->found_ms : FOUND_MS, true);
    find_pins(h, plan->threads_per_rank);
    return h;
}

void health_free(struct health *h)
{
    if (!h) {
        return;
    }
    end_process(h);
    close_fd(&h->in_fd);
    close_fd(&h->out_fd);
    close_fd(&h->pid_fd);
    link_decoder_free(h->decoder);
    if (h->found) {
        node_info__free_unpacked(h->found, NULL);
    }
    free(h->devices);
    free(h->pins);
    free(h);
}

const struct pin *health_pins(const struct health *h)
{
    return h ? h->pins : NULL;
}

void health_finish(struct health *h, bool failed)
{
    if (!h) {
        return;
    }
    h->finishing = true;
    close_fd(&h->in_fd); /* it looks once more, and leaves */
    if (failed) {
        const int64_t last_ms = h->options.last_words_ms;
        listen(h, last_ms ? last_ms : LAST_WORDS_MS, false);
    }
    close_fd(&h->out_fd);
    end_process(h);
}

const char *health_cause(struct health *h)
{
    bool is_late = h && h->cause_ms && clock_mono_ms() - h->cause_ms <= CAUSE_MS;
    return is_late ? h->cause : "";
}
