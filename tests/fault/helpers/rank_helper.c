/* A rank that behaves as the test says: the environment variable RANK_<R> holds a word, or RANK_ALL
 * does. It takes its RankStart first, as a real one does.
 *
 *   done       says that it is done and leaves with 0
 *   hang       waits for ever; ends by TERM
 *   stubborn   the same, but takes no TERM
 *   brood      leaves descendants that take no TERM, in sessions of their own, with their pids in
 *              JOB_DIR/brood-R; then hangs
 *   kill SIG   ends by that signal
 *   exit N     leaves with code N without a word
 *   fault      says that its data is bad, for good, and leaves with 1
 *   obey       waits for StopAtStep, says that it paused there and leaves
 *   find       rank 0 says an id for communicators, then another; rank 1 says one as well. When the
 *              one that rank 0 said first has come, as done
 *   meet [MS]  calls barriers until one fails, of which none waits longer than MS; reports that and
 *              leaves with 1
 *   chat N     prints N numbered lines of 16 bytes, waits for a command, then as done
 *   eat        joins the cgroup whose file of processes EAT_PROCS names, and takes memory for ever
 *   train N    trains: says so, then N times a barrier and (rank 0) a step's report; then as done
 *   train N busy K        before step K it computes for ever
 *   train N slow K MS L LONGER   before step K it takes MS more, before step L it takes LONGER
 *   then WORD  waits for a command, then behaves as WORD
 *   talk N     reports N steps, then as done
 *   talk N by P     before each P of them but the first waits for JOB_DIR/go-1, go-2, ... */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "runtime/comm/comm_host.h"
#include "runtime/link/link.h"

#define DEADLINE_MS 600000

struct self {
    int32_t rank;
    struct link *link;
    RankDown *start; /* of kind start */
    struct comm_host_world *world;
};

static void send_fault(struct self *s, const char *message, bool retryable)
{
    RankFault fault = RANK_FAULT__INIT;
    fault.message = (char *)(uintptr_t)message;
    fault.has_retryable = 1;
    fault.retryable = retryable;
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_FAULT;
    up.fault = &fault;
    link_send(s->link, &up, NULL);
}

static int done(struct self *s, int64_t step, bool paused)
{
    RankDone d = RANK_DONE__INIT;
    d.has_step = d.has_paused = 1;
    d.step = step;
    d.paused = paused;
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_DONE;
    up.done = &d;
    return link_send(s->link, &up, NULL) == 0 ? 0 : 9;
}

static void wait_to_go_on(const struct self *s, int64_t piece)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/go-%lld", s->start->start->job_dir, (long long)piece);
    while (!fs_exists(path)) {
        usleep(1000);
    }
}

static int talk(struct self *s, const char *words)
{
    long long num_steps = 0, piece = 0;
    sscanf(words, "talk %lld by %lld", &num_steps, &piece);
    for (int64_t i = 1; i <= num_steps; i++) {
        if (piece > 0 && i > 1 && (i - 1) % piece == 0) {
            wait_to_go_on(s, (i - 1) / piece);
        }
        StepMetrics m = STEP_METRICS__INIT;
        m.has_step = m.has_loss = 1;
        m.step = i;
        m.loss = 1.0 / (double)i;
        RankUp up = RANK_UP__INIT;
        up.body_case = RANK_UP__BODY_METRICS;
        up.metrics = &m;
        if (link_send(s->link, &up, NULL) != 0) {
            return 9;
        }
    }
    return done(s, num_steps, false);
}

static _Noreturn void hang(bool stubborn)
{
    signal(SIGTERM, stubborn ? SIG_IGN : SIG_DFL);
    printf("waiting"); /* a line without an end */
    fflush(stdout);
    for (;;) {
        pause();
    }
}

static void note_pid(const char *path)
{
    char line[32];
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int n = snprintf(line, sizeof line, "%d\n", (int)getpid());
    fs_write_all(fd, line, (size_t)n);
    close(fd);
}

/* Two that got away from their parent and from the rank's group, and one that has a child. */
static int brood(struct self *s)
{
    char path[4096];
    int born[2];
    snprintf(path, sizeof path, "%s/brood-%d", s->start->start->job_dir, (int)s->rank);
    if (pipe(born) != 0) {
        return 9;
    }
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            setsid();
            signal(SIGTERM, SIG_IGN);
            signal(SIGHUP, SIG_IGN);
            if (fork() != 0 && i < 2) {
                _exit(0);
            }
            note_pid(path);
            fs_write_all(born[1], "x", 1);
            for (;;) {
                pause();
            }
        }
    }
    char c;
    for (int i = 0; i < 4; i++) {
        if (read(born[0], &c, 1) != 1) {
            return 9;
        }
    }
    note_pid(path);
    hang(false);
}

static int obey(struct self *s)
{
    RankDown *down;
    struct error err;
    while (link_poll(s->link, 1000, &down, &err) == 0) {
        if (down && down->body_case == RANK_DOWN__BODY_STOP_AT_STEP) {
            int64_t step = down->stop_at_step->step;
            rank_down__free_unpacked(down, NULL);
            return done(s, step, true);
        }
        if (down) {
            rank_down__free_unpacked(down, NULL);
        }
    }
    return 9;
}

static void say_id(struct self *s, const char *text)
{
    CommId id = COMM_ID__INIT;
    id.has_id = 1;
    id.id.data = (uint8_t *)(uintptr_t)text;
    id.id.len = strlen(text);
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_COMM_ID;
    up.comm_id = &id;
    link_send(s->link, &up, NULL);
}

static int find(struct self *s)
{
    static const char secret[] = "the-secret-of-this-gang";
    static char long_one[300];
    RankDown *down = NULL;
    struct error err;
    memset(long_one, 'x', sizeof long_one - 1);
    if (s->rank == 0) {
        say_id(s, "");
        say_id(s, long_one);
        say_id(s, secret);
    }
    say_id(s, "the-secret-of-nobody");
    while (link_poll(s->link, 1000, &down, &err) == 0) {
        if (down && down->body_case == RANK_DOWN__BODY_COMM_ID) {
            const ProtobufCBinaryData *id = &down->comm_id->id;
            bool good = id->len == strlen(secret) && memcmp(id->data, secret, id->len) == 0;
            rank_down__free_unpacked(down, NULL);
            return good ? done(s, 12, false) : 8;
        }
        if (down) {
            rank_down__free_unpacked(down, NULL);
        }
    }
    return 9;
}

static int call_now(struct device *dev, struct stream *stream, device_call_fn fn, const void *args,
                    size_t bytes, struct error *err)
{
    (void)dev;
    (void)stream;
    _Alignas(16) char copy[DEVICE_CALL_BYTES];
    memcpy(copy, args, bytes);
    return fn(copy, err);
}

static int open_comm(struct self *s, int64_t deadline_ms, struct comm **out, struct error *err)
{
    static const struct device_ops ops = {.name = "now", .host_call = call_now};
    static struct device dev = {.ops = &ops};
    int32_t n = (int32_t)s->start->start->start->plan->n_placement, members[64];
    for (int32_t i = 0; i < n; i++) {
        members[i] = i;
    }
    return comm_host_open(&s->world, 4, s->rank, n, deadline_ms, err) == 0
               ? comm_host_comm_new(s->world, &dev, members, n, out, err)
               : -1;
}

static int meet(struct self *s, const char *word)
{
    struct comm *c;
    struct error err;
    int deadline_ms = DEADLINE_MS;
    sscanf(word, "meet %d", &deadline_ms);
    if (open_comm(s, deadline_ms, &c, &err) != 0) {
        send_fault(s, err.text, false);
        return 1;
    }
    while (c->ops->barrier(c, NULL, &err) == 0) {
    }
    send_fault(s, err.text, true);
    return 1;
}

static void send_phase(struct self *s, const char *phase)
{
    Progress p = PROGRESS__INIT;
    p.has_rank = 1;
    p.rank = s->rank;
    p.phase = (char *)(uintptr_t)phase;
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_PROGRESS;
    up.progress = &p;
    link_send(s->link, &up, NULL);
}

static void send_step(struct self *s, int64_t step)
{
    StepMetrics m = STEP_METRICS__INIT;
    m.has_step = 1;
    m.step = step;
    RankUp up = RANK_UP__INIT;
    up.body_case = RANK_UP__BODY_METRICS;
    up.metrics = &m;
    link_send(s->link, &up, NULL);
}

static int train(struct self *s, const char *words)
{
    int steps = 0, busy = 0, slow[2] = {0, 0}, ms[2] = {0, 0};
    struct comm *c;
    struct error err;
    if (sscanf(words, "train %d busy %d", &steps, &busy) < 2) {
        sscanf(words, "train %d slow %d %d %d %d", &steps, &slow[0], &ms[0], &slow[1], &ms[1]);
    }
    if (open_comm(s, DEADLINE_MS, &c, &err) != 0) {
        send_fault(s, err.text, false);
        return 1;
    }
    send_phase(s, "train");
    for (int i = 1; i <= steps; i++) {
        for (volatile bool computes = i == busy; computes;) {
        }
        for (int k = 0; k < 2; k++) {
            if (i == slow[k]) {
                usleep((useconds_t)ms[k] * 1000);
            }
        }
        if (c->ops->barrier(c, NULL, &err) != 0) {
            send_fault(s, err.text, true);
            return 1;
        }
        if (s->rank == 0) {
            send_step(s, i);
        }
    }
    c->ops->free(c);
    comm_host_close(s->world);
    return done(s, steps, false);
}

static bool wait_for_command(struct self *s)
{
    RankDown *down = NULL;
    struct error err;
    while (!down) {
        if (link_poll(s->link, 1000, &down, &err) != 0) {
            return false;
        }
    }
    rank_down__free_unpacked(down, NULL);
    return true;
}

static int chat(struct self *s, int num_lines)
{
    for (int i = 0; i < num_lines; i++) {
        printf("line %010d\n", i);
    }
    fflush(stdout);
    return wait_for_command(s) ? done(s, 12, false) : 9;
}

static int eat(void)
{
    char line[32];
    const char *procs = getenv("EAT_PROCS");
    int fd = open(procs ? procs : "", O_WRONLY | O_CLOEXEC);
    int n = snprintf(line, sizeof line, "%d", (int)getpid());
    if (fd < 0 || fs_write_all(fd, line, (size_t)n) != 0) {
        return 9;
    }
    for (;;) {
        char *more = malloc(1 << 20);
        if (more) {
            memset(more, 1, 1 << 20);
        }
        __asm__ volatile("" : : "r"(more) : "memory"); /* it is needed, compiler */
    }
}

static int behave(struct self *s, const char *word)
{
    int number = 0;
    if (strncmp(word, "then ", 5) == 0) {
        if (!wait_for_command(s)) {
            return 9;
        }
        word += 5;
    }
    if (sscanf(word, "kill %d", &number) == 1) {
        signal(number, SIG_DFL);
        kill(getpid(), number);
        return 9;
    }
    if (sscanf(word, "exit %d", &number) == 1) {
        return number;
    }
    if (strncmp(word, "talk ", 5) == 0) {
        return talk(s, word);
    }
    if (sscanf(word, "chat %d", &number) == 1) {
        return chat(s, number);
    }
    if (strncmp(word, "train ", 6) == 0) {
        return train(s, word);
    }
    if (strcmp(word, "eat") == 0) {
        return eat();
    }
    if (strcmp(word, "fault") == 0) {
        send_fault(s, "data/train.bin: not a token file", false);
        return 1;
    }
    if (strcmp(word, "hang") == 0 || strcmp(word, "stubborn") == 0) {
        hang(word[0] == 's');
    }
    return strcmp(word, "brood") == 0      ? brood(s)
           : strcmp(word, "obey") == 0     ? obey(s)
           : strcmp(word, "find") == 0     ? find(s)
           : strncmp(word, "meet", 4) == 0 ? meet(s, word)
                                           : done(s, 12, false);
}

int main(int argc, char **argv)
{
    struct self self = {.rank = argc == 5 ? atoi(argv[2]) : -1};
    struct error err;
    char name[32];
    snprintf(name, sizeof name, "RANK_%d", (int)self.rank);
    const char *word = getenv(name) ? getenv(name) : getenv("RANK_ALL");
    if (link_die_with_parent(3, &err) != 0 || link_new(&self.link, 3, &err) != 0 ||
        link_poll(self.link, 30000, &self.start, &err) != 0 || !self.start ||
        self.start->body_case != RANK_DOWN__BODY_START || self.start->start->rank != self.rank) {
        fprintf(stderr, "no start: %s\n", err.text);
        return 9;
    }
    int code = behave(&self, word ? word : "done");
    rank_down__free_unpacked(self.start, NULL);
    link_free(self.link);
    return code;
}
