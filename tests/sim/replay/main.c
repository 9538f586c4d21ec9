/* tandem-replay LOG DB AFTER: runs what record-N.log holds through the controller, on a copy of
 * record-N.db, and compares the events with those of AFTER: record-(N+1).db, or the database of
 * the server. A server that was killed may have committed one step more than its record says.
 * Exits 0: the same; 1: not; 2 usage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/store/backup.h"
#include "server/store/store.h"
#include "base/buf.h"
#include "tests/sim/replay/replay.h"
#include "tests/sim/sim_trace.h"

static bool add_line(void *arg, const Event *e)
{
    buf_printf(arg, "%lld job %lld attempt %d at %lld %s %d>%d %s %s %lld: %s\n", (long long)e->id,
               (long long)e->job_id, e->attempt, (long long)e->time_us, e->kind, (int)e->from,
               (int)e->to, e->cause ? e->cause : "", e->actor ? e->actor : "", (long long)e->step,
               e->message ? e->message : "");
    return true;
}

static int list(const char *db, struct buf *out, struct error *err)
{
    struct store *s;
    if (store_open_reader(&s, db, err) != 0) {
        return -1;
    }
    int rc = store_event_list(s, 0, NULL, 0, 100000000, add_line, out, err);
    store_close(s);
    return rc;
}

static long num_lines(const char *text)
{
    long n = 0;
    for (; *text; text++) {
        n += *text == '\n';
    }
    return n;
}

/* Where they begin to differ; both at their ends = nowhere. */
static int compare(const char *ours, const char *theirs, const struct replay_result *r)
{
    long num = 0;
    while (*ours) {
        size_t len = strcspn(ours, "\n") + 1;
        if (strncmp(ours, theirs, len) != 0) {
            break;
        }
        ours += len;
        theirs += len;
        num++;
    }
    long more_ours = num_lines(ours), more_theirs = num_lines(theirs);
    bool may_have_more = !r->is_whole;
    printf("%ld steps, %ld events the same", r->steps, num);
    if (r->is_cut) {
        printf("; the record ends before its server did\n");
        return more_ours ? 1 : 0;
    }
    if ((more_ours == 0 && more_theirs == 0) || (more_ours == 0 && may_have_more) ||
        (more_theirs == 0 && may_have_more && more_ours <= r->last_new)) {
        printf(more_ours + more_theirs ? "; the server was killed in the middle of a step\n"
                                       : "\n");
        return 0;
    }
    printf("\nreplayed: %.*s\nwas:      %.*s\n", (int)strcspn(ours, "\n"), ours,
           (int)strcspn(theirs, "\n"), theirs);
    return 1;
}

static const char help[] =
    "tandem-replay LOG DB AFTER: what a tandemd did, run through the controller again.\n"
    "LOG and DB: record-N.log and record-N.db of tandemd --record DIR. AFTER: the database that "
    "it\n"
    "left, record-(N+1).db or DATA_DIR/tandem.db. Exits 0 if the events are the same, 1 if not.\n";

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("%s", help);
        return 0;
    }
    if (argc != 4) {
        fprintf(stderr, "%s", help);
        return 2;
    }
    char copy[4200];
    struct error err = {0};
    struct replay_result result;
    struct buf ours = {0}, theirs = {0};
    snprintf(copy, sizeof copy, "%.4000s.replayed-%d", argv[2], (int)getpid());
    int rc = store_copy_file(argv[2], copy, &err) != 0 ||
                     replay_run(argv[1], copy, &result, &err) != 0 ||
                     list(copy, &ours, &err) != 0 || list(argv[3], &theirs, &err) != 0
                 ? -1
                 : 0;
    unlink(copy);
    if (rc != 0) {
        fprintf(stderr, "tandem-replay: %s\n", err.text);
        return 1;
    }
    if (*result.diverged) {
        sim_trace_dump(); /* what the controller logged */
        printf("%s\n", result.diverged);
    }
    rc = compare(ours.data ? ours.data : "", theirs.data ? theirs.data : "", &result);
    buf_free(&ours);
    buf_free(&theirs);
    return rc || *result.diverged ? 1 : 0;
}
