#include "gang.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fs.h"
#include "base/log.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/comm/comm_host.h"
#include "runtime/optim/optimizer.h"
#include "tests/effort.h"

#define DEADLINE_MS 60000

/* cmocka's assertions are for the test's own thread; on the ranks' stands ASSERT. */
static void note_step(struct gang *g, const StepMetrics *m)
{
    if (g->num_steps == 0)
        g->first_step = m->step;
    /* Every step once, in order. */
    ASSERT(g->num_steps < GANG_MAX_STEPS && m->step == g->first_step + g->num_steps);
    g->steps[g->num_steps++] = *m;
}

static void on_up(void *arg, const RankUp *up)
{
    struct gang_rank *rank = arg;
    struct gang *g = rank->gang;
    pthread_mutex_lock(&g->lock);
    switch (up->body_case) {
    case RANK_UP__BODY_METRICS:
        ASSERT(rank->idx == 0);
        note_step(g, up->metrics);
        break;
    case RANK_UP__BODY_CHECKPOINT_DONE:
        ASSERT(g->num_checkpoints < GANG_MAX_CHECKPOINTS);
        g->checkpoint_steps[g->num_checkpoints] = up->checkpoint_done->step;
        snprintf(g->checkpoints[g->num_checkpoints++], sizeof(g->checkpoints[0]), "%s",
                 up->checkpoint_done->dir);
        break;
    case RANK_UP__BODY_EXPORT_DONE:
        snprintf(g->export_dir, sizeof(g->export_dir), "%s", up->export_done->dir);
        break;
    case RANK_UP__BODY_FAULT:
        snprintf(rank->fault, sizeof(rank->fault), "%s", up->fault->message);
        break;
    case RANK_UP__BODY_DONE:
        rank->done = true;
        rank->paused = up->done->paused;
        break;
    default:
        break;
    }
    pthread_mutex_unlock(&g->lock);
    if (up->body_case == RANK_UP__BODY_METRICS && g->on_step != NULL)
        g->on_step(g, up->metrics);
}

void gang_abort(int segment_fd, int culprit, const char *how)
{
    struct stat st;
    if (segment_fd < 0)
        return;
    ASSERT(fstat(segment_fd, &st) == 0);
    void *segment =
        mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, segment_fd, 0);
    ASSERT(segment != MAP_FAILED);
    char reason[64];
    snprintf(reason, sizeof(reason), "rank %d left with %s", culprit, how);
    comm_host_segment_abort(segment, culprit, reason);
    munmap(segment, (size_t)st.st_size);
}

static void *run_rank(void *arg)
{
    struct gang_rank *rank = arg;
    struct gang *g = rank->gang;
    Start start = START__INIT;
    start.plan = (Plan *)g->plan;
    start.resume_dir = (char *)g->resume_dir;
    RankStart rank_start = RANK_START__INIT;
    rank_start.start = &start;
    rank_start.rank = rank->idx;
    rank_start.attempt = 1;
    rank_start.job_id = 7;
    rank_start.job_dir = (char *)g->job_dir;
    struct rank_options options = {
        .start = &rank_start,
        .link = rank->link,
        .segment_fd = g->segment_fd,
        .deadline_ms = g->deadline_ms > 0 ? g->deadline_ms : DEADLINE_MS,
        .observer = g->observer,
        .queued_compute = g->queued_compute || effort_is_set("TANDEM_QUEUED"),
    };
    rank->rc = rank_run(&options, &rank->retryable, &rank->err);
    if (rank->rc != 0)
        gang_abort(g->segment_fd, rank->idx, "code 1");
    return NULL;
}

static void stop_behind(struct gang *g, int64_t step)
{
    StopAtStep stop = STOP_AT_STEP__INIT;
    RankDown down = RANK_DOWN__INIT;
    stop.has_step = 1;
    stop.step = step;
    down.body_case = RANK_DOWN__BODY_STOP_AT_STEP;
    down.stop_at_step = &stop;
    gang_command(g, &down);
}

void gang_run(struct gang *g)
{
    int num = (int)g->plan->mesh->num_ranks;
    struct error err = {0};
    assert_true(num <= GANG_MAX_RANKS);
    char *own_dir = g->job_dir == NULL ? gang_make_dir() : NULL;
    if (own_dir != NULL)
        g->job_dir = own_dir;
    pthread_mutex_init(&g->lock, NULL);
    g->segment_fd = -1;
    if (num > 1 && comm_host_segment_new(num, (size_t)g->plan->memory->shared_bytes, &g->segment_fd,
                                         &err) != 0)
        fail_msg("%s", err.text);
    for (int i = 0; i < num; i++) {
        g->ranks[i] = (struct gang_rank){.gang = g, .idx = i};
        assert_int_equal(link_new_local(&g->ranks[i].link, on_up, &g->ranks[i]), 0);
    }
    if (g->stop_step > 0)
        stop_behind(g, g->stop_step);
    for (int i = 0; i < num; i++)
        assert_int_equal(pthread_create(&g->ranks[i].thread, NULL, run_rank, &g->ranks[i]), 0);
    for (int i = 0; i < num; i++)
        pthread_join(g->ranks[i].thread, NULL);
    for (int i = 0; i < num; i++)
        link_free(g->ranks[i].link);
    if (g->segment_fd >= 0)
        close(g->segment_fd);
    pthread_mutex_destroy(&g->lock);
    if (own_dir != NULL) {
        gang_remove_dir(own_dir);
        g->job_dir = NULL;
    }
}

void gang_run_well(struct gang *g)
{
    gang_run(g);
    for (int i = 0; i < g->plan->mesh->num_ranks; i++) {
        if (g->ranks[i].rc != 0)
            fail_msg("rank %d: %s", i, g->ranks[i].err.text);
        assert_true(g->ranks[i].done);
    }
}

void gang_command(struct gang *g, const RankDown *message)
{
    for (int i = 0; i < g->plan->mesh->num_ranks; i++)
        ASSERT(link_inject(g->ranks[i].link, message) == 0);
}

void gang_quiet(void)
{
    setenv("TANDEM_LOG", "warn", 0);
    log_init("gang");
}

double *gang_weights(const Plan *plan, const char *ckpt_dir)
{
    struct param_table table;
    struct ckpt_meta meta;
    struct error err = {0};
    assert_int_equal(params_expand(plan, 0, &table, &err), 0);
    size_t n = (size_t)table.flat_numel;
    double *buffers = calloc(3 * n, sizeof(*buffers));
    assert_non_null(buffers);
    bool moments = optimizer_has_moments(plan->spec->training->optimizer);
    struct ckpt_state state = {
        .table = &table,
        .dtype = DTYPE_F64,
        .weights = {.data = buffers},
        .exp_avg = {.data = moments ? buffers + n : NULL},
        .exp_avg_sq = {.data = moments ? buffers + 2 * n : NULL},
    };
    if (ckpt_load(ckpt_dir, &state, &meta, &err) != 0)
        fail_msg("%s", err.text);
    params_free(&table);
    return buffers;
}

/* Folders that are there. A failed test leaves its function half-way: the end of the program takes
 * away what it has left. */
#define DIRS_MAX 64
static char *dirs[DIRS_MAX];

static void remove_dirs(void)
{
    for (int i = 0; i < DIRS_MAX; i++)
        if (dirs[i] != NULL)
            fs_remove_tree(dirs[i], NULL);
}

static void note_dir(char *dir)
{
    static bool registered;
    int i = 0;
    if (!registered)
        assert_int_equal(atexit(remove_dirs), 0);
    registered = true;
    while (i < DIRS_MAX && dirs[i] != NULL)
        i++;
    assert_true(i < DIRS_MAX);
    dirs[i] = dir;
}

char *gang_make_dir(void)
{
    char *dir = strdup("/tmp/tandem-gang-XXXXXX");
    assert_non_null(dir);
    assert_non_null(mkdtemp(dir));
    note_dir(dir);
    return dir;
}

void gang_remove_dir(char *dir)
{
    fs_remove_tree(dir, NULL);
    for (int i = 0; i < DIRS_MAX; i++)
        if (dirs[i] == dir)
            dirs[i] = NULL;
    free(dir);
}
