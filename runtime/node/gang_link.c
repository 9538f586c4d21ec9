/* The links between a gang and its ranks: frames down, reports up. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "proto/text.h"
#include "runtime/node/gang_state.h"

/* Longest text of a rank that goes up. */
#define UP_TEXT_MAX 4096

void gang_flush(struct gang_member *m)
{
    while (m->fd >= 0 && m->out.len) {
        ssize_t n = send(m->fd, m->out.data, m->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            buf_consume(&m->out, (size_t)n);
        } else if (errno != EINTR) {
            if (errno != EAGAIN) {
                buf_clear(&m->out); /* it is dying: its exit says the rest */
            }
            return;
        }
    }
}

void gang_queue(struct gang_member *m, const RankDown *message)
{
    struct error err;
    if (m->fd < 0) {
        return;
    }
    if (link_frame(&m->out, &message->base, &err) != 0) {
        log_error("rank %d: %s", (int)m->rank, err.text);
        return;
    }
    gang_flush(m);
}

void gang_send(struct gang *g, const RankDown *message)
{
    for (int32_t i = 0; i < g->options.num_ranks; i++) {
        gang_queue(&g->members[i], message);
    }
}

static void take_fault(struct gang *g, struct gang_member *m, const RankFault *fault)
{
    m->faulted = true;
    m->is_final = !fault->retryable;
    snprintf(m->fault, sizeof m->fault, "%s",
             fault->message && fault->message[0] ? fault->message : "failed without a word of why");
    gang_fail(g, m->rank, m->fault);
}

static void take_up(struct gang *g, struct gang_member *m, const RankUp *up)
{
    switch (up->body_case) {
    case RANK_UP__BODY_FAULT:
        take_fault(g, m, up->fault);
        return;
    case RANK_UP__BODY_DONE:
        m->done = true;
        m->paused = up->done->paused;
        m->step = up->done->has_step ? up->done->step : m->step;
        return;
    case RANK_UP__BODY_METRICS:
        m->step = up->metrics->step;
        gang_stalled_step(g);
        break;
    case RANK_UP__BODY_PROGRESS:
        m->step = up->progress->has_step ? up->progress->step : m->step;
        gang_stalled_phase(g, m, up->progress->phase ? up->progress->phase : "");
        break;
    default:
        break;
    }
    g->options.on_up(g->options.arg, m->rank, up);
}

static void take_frames(struct gang *g, struct gang_member *m)
{
    const uint8_t *body;
    size_t len;
    struct error err;
    while (m->fd >= 0) {
        ProtobufCMessage *up;
        if (link_decoder_next(m->decoder, &body, &len, &err) != 0) {
            gang_fail(g, m->rank, err.text);
            close(m->fd);
            m->fd = -1;
        } else if (!body) {
            return;
        } else if (text_unpack(&rank_up__descriptor, body, len, LINK_MESSAGE_MAX, &up, &err) != 0 ||
                   text_check_message(up, UP_TEXT_MAX, &err) != 0) {
            log_warn("rank %d sent what can't be taken: %s", (int)m->rank, err.text);
        } else {
            take_up(g, m, (RankUp *)up);
            protobuf_c_message_free_unpacked(up, NULL);
        }
    }
}

void gang_receive(struct gang *g, struct gang_member *m, int most)
{
    char data[16384];
    for (int i = 0; i < most && m->fd >= 0; i++) {
        ssize_t n = recv(m->fd, data, sizeof data, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n <= 0 || link_decoder_feed(m->decoder, data, (size_t)n, NULL) != 0) {
            close(m->fd);
            m->fd = -1;
            return;
        }
        take_frames(g, m);
    }
}
