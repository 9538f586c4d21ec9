/* The events of a job, for reading: what follows from one cause stands in one line, and a long
 * cause in full once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "clients/cli/human.h"
#include "clients/cli/job.h"
#include "clients/cli/show.h"

enum {
    LONG_CAUSE = 100, /* bytes, from which a cause isn't said twice */
    ALIKE = 64,       /* by so many first bytes it is known again: a copy may be cut off */
};

/* Causes that have been said in full: messages of the job's own events. */
struct said {
    const char **causes; /* owned */
    size_t num;
};

static bool is_exit(const Event *e)
{
    return e->kind && strcmp(e->kind, "rank-exit") == 0 && e->message;
}

static bool is_checkpoint(const Event *e)
{
    return e->kind && strcmp(e->kind, "checkpoint") == 0 && e->has_step && !e->has_to;
}

static bool is_long_exit(const Event *e)
{
    return is_exit(e) && strlen(e->message) >= LONG_CAUSE;
}

/* Where text repeats the cause, and over how many bytes; NULL = it doesn't. */
static const char *find_cause(const char *text, const char *cause, size_t *len)
{
    char head[ALIKE + 1];
    snprintf(head, sizeof head, "%s", cause);
    const char *at = strstr(text, head);
    size_t n = 0;
    while (at && at[n] && at[n] == cause[n]) {
        n++;
    }
    *len = n;
    return at && (!cause[n] || !at[n]) ? at : NULL;
}

/* "restart: rank 1, as above (restart 1 of 10)" for what the page has said before. */
static void refer(const struct said *s, char *text, size_t size)
{
    for (size_t i = 0; i < s->num; i++) {
        size_t len;
        const char *cause = s->causes[i], *at = find_cause(text, cause, &len);
        if (at) {
            struct buf out = {0};
            buf_printf(&out, "%.*s%.*s, as above%s", (int)(at - text), text,
                       (int)strcspn(cause, ":"), cause, at + len);
            snprintf(text, size, "%s", out.data);
            buf_free(&out);
            return;
        }
    }
}

/* note: behind the text; may be "". */
static void add_row(const struct cli *cli, const Event *e, const char *text, const char *note,
                    struct buf *out)
{
    char h[HUMAN_MAX];
    buf_printf(out, "  %s  ", human_time(h, e->time_us, clock_wall_us()));
    if (e->has_to) {
        buf_printf(out, "%s%-9s%s", cli->colour ? job_state_colour(e->to) : "",
                   job_state_word(e->to), cli->colour ? "\033[0m" : "");
    } else {
        buf_printf(out, "%-9s", e->kind ? e->kind : "");
    }
    if (e->has_step && !e->has_to) {
        buf_printf(out, "  step %lld", (long long)e->step);
    }
    buf_printf(out, "%s%s%s", text[0] ? "  " : "", text, note);
    if (e->actor && e->actor[0]) {
        buf_printf(out, "%s  (%s)%s", cli->colour ? "\033[2m" : "", e->actor,
                   cli->colour ? "\033[0m" : "");
    }
    buf_puts(out, "\n");
}

static void add_event(const struct cli *cli, struct said *s, const Event *e, const char *note,
                      struct buf *out)
{
    char text[ERROR_TEXT_MAX];
    job_event_text(e, text, sizeof text);
    refer(s, text, sizeof text);
    add_row(cli, e, text, note, out);
    if (is_long_exit(e)) {
        s->causes[s->num++] = e->message;
    }
}

/* ---- the ends of an attempt's ranks ---------------------------------------------------------- */

/* Behind "rank 3". */
static const char *why_of(const Event *e)
{
    const char *at = e->message + (strncmp(e->message, "rank ", 5) == 0 ? 5 : 0);
    return at + strspn(at, "0123456789");
}

static int rank_of(const Event *e)
{
    int rank = -1;
    return sscanf(e->message, "rank %d", &rank) == 1 ? rank : -1;
}

/* Did it end for the same reason as root, or of root's end? */
static bool follows(const Event *e, const Event *root)
{
    size_t len;
    return strcmp(why_of(e), why_of(root)) == 0 || find_cause(e->message, root->message, &len);
}

static int by_number(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* "5 others left: 0, 2-5" */
static void others_words(int *ranks, size_t num, struct buf *out)
{
    qsort(ranks, num, sizeof *ranks, by_number);
    buf_printf(out, "%zu other%s left: ", num, num == 1 ? "" : "s");
    for (size_t i = 0; i < num; i++) {
        size_t first = i;
        while (i + 1 < num && ranks[i + 1] == ranks[i] + 1) {
            i++;
        }
        bool range = i > first + 1;
        i = range ? i : first;
        buf_printf(out, "%s%d", first ? ", " : "", ranks[first]);
        if (range) {
            buf_printf(out, "-%d", ranks[i]);
        }
    }
}

/* The event of the run that the end of events[k] came from. */
static size_t root_of(Event *const *events, size_t num, const bool *done, size_t k)
{
    size_t len;
    for (size_t i = 0; i < num; i++) {
        if (i != k && !done[i] && !strstr(events[i]->message, events[k]->message) &&
            find_cause(events[k]->message, events[i]->message, &len)) {
            return i;
        }
    }
    return k;
}

static void add_exits(const struct cli *cli, struct said *s, Event *const *events, size_t num,
                      struct buf *out)
{
    bool *done = calloc(num, sizeof *done);
    int *ranks = calloc(num, sizeof *ranks);
    ASSERT(done && ranks);
    for (size_t k = 0; k < num; k++) {
        while (!done[k]) {
            size_t root = root_of(events, num, done, k), num_others = 0;
            const Event *other = NULL;
            done[root] = true;
            add_event(cli, s, events[root], "", out);
            for (size_t i = 0; i < num; i++) {
                if (!done[i] && follows(events[i], events[root])) {
                    done[i] = true;
                    other = events[i];
                    ranks[num_others++] = rank_of(other);
                }
            }
            if (num_others > 0) {
                struct buf words = {0};
                others_words(ranks, num_others, &words);
                add_row(cli, other, words.data, "", out);
                buf_free(&words);
            }
        }
    }
    free(done);
    free(ranks);
}

/* ---- all of them ----------------------------------------------------------------------------- */

void show_events(const struct cli *cli, const Job *j, struct buf *out)
{
    struct said s = {.causes = calloc(2 * j->n_events + 1, sizeof *s.causes)};
    ASSERT(s.causes);
    for (size_t i = 0; i < j->n_events && j->message; i++) {
        size_t len;
        if (is_long_exit(j->events[i]) && find_cause(j->message, j->events[i]->message, &len)) {
            s.causes[s.num++] = j->events[i]->message; /* it stands above as the job's "why" */
        }
    }
    for (size_t i = 0; i < j->n_events; i++) {
        Event *const *at = &j->events[i];
        size_t num = 1;
        char note[48] = "";
        while (i + num < j->n_events && is_exit(at[0]) && is_exit(at[num]) &&
               at[num]->attempt == at[0]->attempt) {
            num++;
        }
        while (i + num < j->n_events && is_checkpoint(at[0]) && is_checkpoint(at[num])) {
            num++; /* of many in a row the newest speaks for all */
        }
        if (is_exit(at[0])) {
            add_exits(cli, &s, at, num, out);
        } else {
            if (num > 1) {
                snprintf(note, sizeof note, " and %zu before it", num - 1);
            }
            add_event(cli, &s, at[num - 1], note, out);
        }
        i += num - 1;
    }
    free(s.causes);
}
