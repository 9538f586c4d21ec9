#include "clients/cli/follow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "clients/cli/away.h"
#include "clients/cli/human.h"
#include "clients/cli/job.h"
#include "clients/cli/progress.h"
#include "clients/cli/terminal.h"

enum {
    REDRAW_MS = 100, /* of the bar */
    LINE_MS = 1000,  /* between plain lines */
    AGAIN_MS = 500,  /* between streams that ended well */
};

/* Weight of a step in the mean that the ETA stands on: about the last 100 count. */
#define STEP_SHARE_MIN 0.01

struct follow {
    struct cli *cli;
    bool quiet;
    Job *job;              /* owned; the latest state */
    char id[32];           /* its number, once known */
    int64_t last_event_id; /* 0 = none seen */
    struct progress now;
    double step_s;     /* of the latest steps, the mean; NaN = not known */
    int num_steps;     /* that went into it */
    bool fresh;        /* figures that were not shown yet */
    int64_t line_step; /* of the last plain line; -1 = none */
    bool bar_shown;    /* the cursor stands behind a bar */
    int64_t shown_ms;  /* when */
    bool was_there;    /* the server has answered the stream */
};

/* ---- what is shown ------------------------------------------------------------------------- */

static void clear_bar(struct follow *f)
{
    if (f->bar_shown) {
        fputs("\r\033[K", stdout);
        fflush(stdout); /* what comes next may go to stderr */
        f->bar_shown = false;
    }
}

static void say(struct follow *f, int64_t time_us, const char *colour, const char *head,
                const char *text)
{
    char h[HUMAN_MAX];
    if (f->quiet) {
        return;
    }
    clear_bar(f);
    bool paint = f->cli->colour && colour;
    printf("%s  %s%s%s%s%s\n", human_time(h, time_us, clock_wall_us()), paint ? colour : "", head,
           paint ? "\033[0m" : "", text && text[0] ? "  " : "", text ? text : "");
    fflush(stdout);
}

static void show_figures(struct follow *f)
{
    int64_t now = clock_mono_ms();
    bool tty = f->cli->out_tty;
    if (f->quiet || !f->job || !f->fresh || now - f->shown_ms < (tty ? REDRAW_MS : LINE_MS)) {
        return;
    }
    struct buf b = {0};
    if (tty) {
        buf_puts(&b, "\r");
        progress_bar(&b, &f->now, terminal_width(), f->cli->utf8, f->cli->colour);
        buf_puts(&b, "\033[K");
        f->bar_shown = true;
    } else if (f->now.step > 0 && f->now.step != f->line_step) {
        progress_line(&b, &f->now);
        buf_putc(&b, '\n');
        f->line_step = f->now.step;
    }
    fwrite(b.data ? b.data : "", 1, b.len, stdout);
    fflush(stdout);
    buf_free(&b);
    f->shown_ms = now;
    f->fresh = false;
}

/* ---- what comes in ------------------------------------------------------------------------- */

static void take_job(struct follow *f, WatchReply *r)
{
    Job *j = r->job;
    r->job = NULL;
    if (f->job) {
        job__free_unpacked(f->job, NULL);
    }
    f->job = j;
    f->now.name = j->name;
    f->now.total_steps = j->total_steps;
    if (j->step > f->now.step || j->step == 0) { /* it knows more than the stream has told */
        f->now.step = j->step;
        f->now.loss = j->has_loss && j->step > 0 ? j->loss : NAN;
        f->now.tokens_per_s = j->tokens_per_s > 0 ? j->tokens_per_s : NAN;
        f->now.mfu = j->mfu > 0 ? j->mfu : NAN;
        f->now.grad_norm = NAN;
    }
    if (isnan(f->now.eta_s) && j->has_eta_s && j->state == JOB_RUNNING) {
        f->now.eta_s = j->eta_s;
    }
    f->now.note = j->state == JOB_RUNNING ? NULL : job_state_word(j->state);
    f->fresh = true;
}

static void take_metrics(struct follow *f, const StepMetrics *m)
{
    struct progress *p = &f->now;
    p->step = m->step;
    p->loss = m->has_loss ? m->loss : NAN;
    p->grad_norm = m->has_grad_norm ? m->grad_norm : NAN;
    p->tokens_per_s = m->has_tokens_per_s ? m->tokens_per_s : NAN;
    p->mfu = m->has_mfu && m->mfu > 0 ? m->mfu : NAN;
    if (m->has_step_ms && m->step_ms > 0) {
        double s = m->step_ms / 1000;
        f->num_steps++;
        double share = 1.0 / f->num_steps > STEP_SHARE_MIN ? 1.0 / f->num_steps : STEP_SHARE_MIN;
        f->step_s = isnan(f->step_s) ? s : (1 - share) * f->step_s + share * s;
        p->eta_s = f->step_s * (double)(p->total_steps - p->step);
    }
    p->note = NULL;
    f->fresh = true;
}

/* A file reads in order: the last step's line before the end. */
static void flush_line(struct follow *f)
{
    if (!f->cli->out_tty) {
        f->shown_ms = 0;
        show_figures(f);
    }
}

/* Of a job that stands still until somebody says otherwise: how. */
static void add_way_on(const struct follow *f, JobState state, char *text, size_t size)
{
    const char *verb = state == JOB_PAUSED ? "resume" : state == JOB_HELD ? "release" : NULL;
    size_t len = strlen(text);
    if (verb) {
        snprintf(text + len, size - len, "%suntil: tandem %s %s", len ? "; " : "", verb, f->id);
    }
}

static void take_event(struct follow *f, const Event *e)
{
    if (e->has_id && e->id > f->last_event_id) {
        f->last_event_id = e->id;
    }
    const char *kind = e->kind ? e->kind : "";
    char text[ERROR_TEXT_MAX];
    const char *message = e->message ? e->message : "";
    if (e->has_to) {
        flush_line(f);
        job_event_text(e, text, sizeof text);
        add_way_on(f, e->to, text, sizeof text);
        say(f, e->time_us, job_state_colour(e->to), job_state_word(e->to), text);
        f->step_s = NAN;
        f->num_steps = 0;
        f->now.eta_s = NAN;
    } else if (strcmp(kind, "dropped") == 0) {
        snprintf(text, sizeof text, "%lld updates came too fast for this screen",
                 (long long)e->dropped);
        say(f, clock_wall_us(), NULL, "skipped", text);
    } else if (strcmp(kind, "checkpoint") == 0) {
        snprintf(text, sizeof text, "step %lld  %s", (long long)e->step, message);
        say(f, e->time_us, NULL, kind, e->has_step ? text : message);
    } else {
        job_event_text(e, text, sizeof text);
        say(f, e->time_us, NULL, kind, text);
    }
}

static bool has_ended(const struct follow *f)
{
    return f->job && job_has_ended(f->job->state);
}

static void take(struct follow *f, WatchReply *r)
{
    if (r->event) {
        take_event(f, r->event);
    }
    if (r->metrics) {
        take_metrics(f, r->metrics);
    }
    if (r->job) {
        take_job(f, r);
    }
}

/* ---- the stream ---------------------------------------------------------------------------- */

static int open_stream(struct follow *f, struct rpc_stream **out, struct error *err)
{
    struct rpc_channel *channel;
    if (cli_channel(f->cli, &channel, err)) {
        return -1;
    }
    WatchRequest q = WATCH_REQUEST__INIT;
    q.job = f->id;
    q.has_after_event_id = 1;
    q.after_event_id = f->last_event_id;
    return rpc_stream_open(channel, "/tandem.v1.Jobs/Watch", &q.base, out, err);
}

/* Reads until the stream ends: 0 = it ended well or the job has ended, -1 = err. */
static int read_stream(struct follow *f, struct rpc_stream *s, struct error *err)
{
    while (!terminal_interrupted()) {
        ProtobufCMessage *m;
        int r = rpc_stream_recv(s, &watch_reply__descriptor, &m, REDRAW_MS, err);
        if (r == 1) {
            f->was_there = true;
            if (f->cli->away_since_ms) {
                f->cli->away_since_ms = 0;
                say(f, clock_wall_us(), NULL, "connected", "the server is back");
            }
            take(f, (WatchReply *)m);
            protobuf_c_message_free_unpacked(m, NULL);
        } else if (r == 0) {
            return 0;
        } else if (err->code != ERR_DEADLINE_EXCEEDED) {
            return -1;
        }
        show_figures(f);
    }
    return 0;
}

/* The server is away: true = try again. */
static bool wait_for_server(struct follow *f, const struct error *err)
{
    /* Ended for what we or others asked of it at once: not for good. */
    bool is_busy = err->code == ERR_RESOURCE_EXHAUSTED && f->was_there;
    if (err->code != ERR_UNAVAILABLE && err->code != ERR_CANCELLED && !is_busy) {
        return false;
    }
    if (!f->cli->away_since_ms && f->cli->answered) {
        char text[ERROR_TEXT_MAX + 64];
        snprintf(text, sizeof text, "%s; the job goes on, trying again",
                 is_busy ? err->text : "the server is away");
        say(f, clock_wall_us(), "\033[33m", "disconnected", text);
    }
    return away_wait(f->cli, err);
}

/* Asks what the job is now, and which event is the last that it tells of. */
static int refresh(struct follow *f, const char *ref, struct error *err)
{
    WatchReply r = WATCH_REPLY__INIT;
    if (job_get(f->cli, ref, &r.job, err)) {
        return -1;
    }
    take_job(f, &r);
    return 0;
}

static int begin(struct follow *f, const char *ref, struct error *err)
{
    while (refresh(f, ref, err)) {
        if (terminal_interrupted()) {
            return 0;
        }
        if (!wait_for_server(f, err)) {
            return -1;
        }
    }
    const Job *j = f->job;
    snprintf(f->id, sizeof f->id, "%lld", (long long)j->id);
    for (size_t i = 0; i < j->n_events; i++) {
        f->last_event_id =
            j->events[i]->id > f->last_event_id ? j->events[i]->id : f->last_event_id;
    }
    if (!has_ended(f)) {
        char text[ERROR_TEXT_MAX];
        snprintf(text, sizeof text, "%s%sjob %lld, %s", j->cause ? j->cause : "",
                 j->cause && j->cause[0] ? "; " : "", (long long)j->id, j->name ? j->name : "");
        add_way_on(f, j->state, text, sizeof text);
        say(f, clock_wall_us(), job_state_colour(j->state), job_state_word(j->state), text);
    }
    return 0;
}

static int follow_to_the_end(struct follow *f, struct error *err)
{
    while (!has_ended(f) && !terminal_interrupted()) {
        struct rpc_stream *s;
        int r = open_stream(f, &s, err);
        if (r == 0) {
            r = read_stream(f, s, err);
            rpc_stream_close(s);
        }
        if (r == 0 && !has_ended(f) && !terminal_interrupted()) {
            r = refresh(f, f->id, err);
        }
        if (terminal_interrupted()) {
            return 0;
        }
        if (r < 0 && !wait_for_server(f, err)) {
            return -1;
        }
        if (r == 0 && !has_ended(f)) {
            clock_sleep_ms(AGAIN_MS);
        }
    }
    return 0;
}

/* The last figures, then the end in words. */
static int report(struct follow *f)
{
    if (!f->quiet) {
        f->fresh = f->now.step > 0;
        f->shown_ms = 0;
        f->now.note = f->now.note && isnan(f->now.loss) ? f->now.note : NULL;
        f->now.eta_s = NAN;
        show_figures(f);
        if (f->bar_shown) {
            putchar('\n');
        }
        f->bar_shown = false;
        char took[HUMAN_MAX];
        double s = (double)(f->job->ended_us - f->job->started_us) / 1e6;
        const char *weights = f->job->export_dir ? f->job->export_dir : "";
        printf("%s%s%s%s%s%s%s\n", f->cli->colour ? job_state_colour(f->job->state) : "",
               job_state_word(f->job->state), f->cli->colour ? "\033[0m" : "",
               f->job->ended_us && f->job->started_us ? " after " : "",
               f->job->ended_us && f->job->started_us ? human_duration(took, s) : "",
               weights[0] ? "; weights in " : "", weights);
        fflush(stdout);
    }
    return job_report_end(f->cli, f->job);
}

int follow_job(struct cli *cli, const char *ref, bool quiet)
{
    struct follow f = {.cli = cli, .quiet = quiet, .step_s = NAN, .line_step = -1};
    f.now = (struct progress){
        .loss = NAN, .grad_norm = NAN, .tokens_per_s = NAN, .mfu = NAN, .eta_s = NAN};
    struct error err;
    terminal_catch_interrupt();
    int code;
    if (begin(&f, ref, &err) || follow_to_the_end(&f, &err)) {
        clear_bar(&f);
        code = cli_fail(&err);
    } else if (has_ended(&f)) {
        code = report(&f);
    } else {
        f.bar_shown = cli->out_tty; /* or the terminal's ^C */
        clear_bar(&f);
        if (f.id[0]) {
            fprintf(stderr, "tandem: detached; the job runs on (tandem watch %s)\n", f.id);
        } else {
            fprintf(stderr, "tandem: interrupted before the server has told of %s\n", ref);
        }
        code = EXIT_DETACHED;
    }
    if (f.job) {
        job__free_unpacked(f.job, NULL);
    }
    return code;
}
