/* A rank that trains nothing, quickly: step n's loss is a function of n, so a curve that was put
 * together from several attempts can be told from a wrong one. It obeys StopAtStep, saves
 * "checkpoints" at the spec's interval and goes on from the one it is given. The job's tags say
 * what else it does:
 *
 *   ms=N         waits N ms a step
 *   wait=N       waits N ms before the first step
 *   gate=STEP    waits after that step (0: before the first) until JOB_DIR/gate-STEP is there, or
 *                until it is to stop; as many as there are tags
 *   late         obeys StopAtStep only once JOB_DIR/may-stop is there
 *   die=STEP     kills itself with KILL after that step, in the first attempt
 *   exit=CODE    leaves with that code after its first step, in every attempt
 *   raise=SIG    ends by that signal after its first step, in every attempt
 *   stubborn     takes no TERM
 *   deaf         hears no StopAtStep
 *   brood        leaves a descendant in a session of its own that takes no TERM
 *   holder       leaves a child that holds stdout open
 *   clean        leaves one, in a session of its own, with no parent and no environment left
 *   undead       leaves one, in a session of its own, that helpers/undead.c keeps from being killed
 *   id           rank 0 says an id for communicators; all train once it has come back
 *   say          prints a line a step */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/fs.h"
#include "runtime/link/link.h"

struct self {
    int32_t rank;
    struct link *link;
    RankDown *start;
    int64_t stop_at; /* -1 = not asked for */
};

static const JobSpec *spec_of(const struct self *s)
{
    return s->start->start->start->plan->spec;
}

/* The tag's number; -1 without the tag; 0 for one without a number. */
static int64_t tag(const struct self *s, const char *name)
{
    const JobSpec *spec = spec_of(s);
    size_t n = strlen(name);
    for (size_t i = 0; i < spec->n_tags; i++) {
        if (strncmp(spec->tags[i], name, n) == 0 &&
            (!spec->tags[i][n] || spec->tags[i][n] == '=')) {
            return spec->tags[i][n] ? atoll(spec->tags[i] + n + 1) : 0;
        }
    }
    return -1;
}

static void up(struct self *s, Tandem__V1__RankUp__BodyCase what, void *body)
{
    RankUp message = RANK_UP__INIT;
    message.body_case = what;
    message.metrics = body; /* the members of the union are pointers */
    if (link_send(s->link, &message, NULL) != 0) {
        exit(9);
    }
}

static void report(struct self *s, int64_t step)
{
    StepMetrics m = STEP_METRICS__INIT;
    m.has_step = m.has_loss = m.has_grad_norm = m.has_tokens = 1;
    m.step = step;
    m.loss = 10.0 / (double)step + 1.0 / 3.0;
    m.grad_norm = 1.0 / (double)(step + 7);
    m.tokens = step * 128;
    m.has_step_ms = tag(s, "ms") > 0;
    m.step_ms = (double)tag(s, "ms");
    up(s, RANK_UP__BODY_METRICS, &m);
    if (tag(s, "say") >= 0) {
        printf("step %lld\n", (long long)step);
        fflush(stdout);
    }
}

static void save(struct self *s, int64_t step)
{
    char dir[96], path[4096];
    const RankStart *start = s->start->start;
    snprintf(dir, sizeof dir, "ckpt/step-%08lld-a%d", (long long)step, start->attempt);
    snprintf(path, sizeof path, "%s/%s", start->job_dir, dir);
    fs_mkdirs(path, 0770, NULL);
    snprintf(path, sizeof path, "%s/%s/COMPLETE", start->job_dir, dir);
    fs_write_atomic(path, "", 0, 0660, NULL);
    CheckpointDone done = CHECKPOINT_DONE__INIT;
    done.has_step = 1;
    done.step = step;
    done.dir = dir;
    up(s, RANK_UP__BODY_CHECKPOINT_DONE, &done);
}

static void breed(bool holder, const char *name)
{
    if (fork() == 0) {
        if (!holder) {
            setsid();
        }
        prctl(PR_SET_NAME, name);
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        for (;;) {
            pause();
        }
    }
}

static void breed_clean(void)
{
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            execle("/bin/sleep", "sleep", "1000", (char *)NULL, (char *[]){NULL});
        }
        _exit(0);
    }
}

static void listen_to(struct self *s, int64_t wait_ms)
{
    RankDown *down;
    do {
        if (link_poll(s->link, wait_ms, &down, NULL) != 0) {
            exit(9); /* tandem-node is gone */
        }
        if (down && down->body_case == RANK_DOWN__BODY_STOP_AT_STEP && tag(s, "deaf") < 0) {
            s->stop_at = down->stop_at_step->step;
        }
        if (down) {
            rank_down__free_unpacked(down, NULL);
        }
        wait_ms = 0;
    } while (down);
}

/* As ranks do that talk through an accelerator's communicators. */
static void meet(struct self *s)
{
    static uint8_t secret[] = "the-secret-of-a-gang";
    CommId id = COMM_ID__INIT;
    id.has_id = 1;
    id.id = (ProtobufCBinaryData){.len = sizeof secret - 1, .data = secret};
    if (s->rank == 0) {
        up(s, RANK_UP__BODY_COMM_ID, &id);
    }
    for (bool met = false; !met;) {
        RankDown *down;
        if (link_poll(s->link, 60000, &down, NULL) != 0 || !down) {
            exit(9);
        }
        met = down->body_case == RANK_DOWN__BODY_COMM_ID;
        rank_down__free_unpacked(down, NULL);
    }
}

static bool is_there(const struct self *s, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", s->start->start->job_dir, name);
    return access(path, F_OK) == 0;
}

static bool is_to_stop(const struct self *s, int64_t done)
{
    return s->stop_at >= 0 && done >= s->stop_at && (tag(s, "late") < 0 || is_there(s, "may-stop"));
}

static void wait_at_gate(struct self *s, int64_t step)
{
    char name[32];
    const JobSpec *spec = spec_of(s);
    snprintf(name, sizeof name, "gate=%lld", (long long)step);
    for (size_t i = 0; i < spec->n_tags; i++) {
        if (strcmp(spec->tags[i], name) == 0) {
            name[strlen("gate")] = '-';
            while (!is_there(s, name) && !is_to_stop(s, step)) {
                listen_to(s, 5);
            }
            return;
        }
    }
}

static void finish(struct self *s, int64_t step, bool paused)
{
    RankDone done = RANK_DONE__INIT;
    done.has_step = done.has_paused = 1;
    done.step = step;
    done.paused = paused;
    up(s, RANK_UP__BODY_DONE, &done);
}

static void train(struct self *s)
{
    const RankStart *start = s->start->start;
    const CheckpointSpec *c = spec_of(s)->checkpoint;
    int64_t total = start->start->plan->total_steps;
    int64_t interval = c && c->interval ? atoll(c->interval) : 0;
    int64_t ms = tag(s, "ms"), die = tag(s, "die");
    if (start->start->resume_step == 0) {
        wait_at_gate(s, 0);
    }
    for (int64_t step = start->start->resume_step + 1; step <= total; step++) {
        listen_to(s, ms > 0 ? ms : 0);
        if (is_to_stop(s, step - 1)) {
            if (s->rank == 0) {
                save(s, step - 1);
            }
            finish(s, step - 1, true);
            return;
        }
        if (s->rank == 0) {
            report(s, step);
            if ((interval && step % interval == 0) || step == total) {
                save(s, step);
            }
        }
        if (die == step && start->attempt == 1) {
            kill(getpid(), SIGKILL);
        }
        if (tag(s, "exit") >= 0) {
            _exit((int)tag(s, "exit"));
        }
        if (tag(s, "raise") > 0) {
            signal((int)tag(s, "raise"), SIG_DFL); /* a sanitizer has a handler for some */
            kill(getpid(), (int)tag(s, "raise"));
        }
        wait_at_gate(s, step);
    }
    finish(s, total, false);
}

int main(int argc, char **argv)
{
    struct self s = {.rank = argc == 5 ? atoi(argv[2]) : -1, .stop_at = -1};
    if (link_die_with_parent(3, NULL) != 0 || link_new(&s.link, 3, NULL) != 0 ||
        link_poll(s.link, 30000, &s.start, NULL) != 0 || !s.start) {
        return 9;
    }
    if (tag(&s, "stubborn") >= 0) {
        signal(SIGTERM, SIG_IGN);
    }
    if (tag(&s, "brood") >= 0) {
        breed(false, "brood");
    }
    if (tag(&s, "holder") >= 0) {
        breed(true, "holder");
    }
    if (tag(&s, "clean") >= 0) {
        breed_clean();
    }
    if (tag(&s, "undead") >= 0) {
        breed(false, "undead");
    }
    if (tag(&s, "wait") > 0) {
        listen_to(&s, tag(&s, "wait"));
    }
    if (tag(&s, "id") >= 0) {
        meet(&s);
    }
    train(&s);
    rank_down__free_unpacked(s.start, NULL);
    link_free(s.link);
    return 0;
}
