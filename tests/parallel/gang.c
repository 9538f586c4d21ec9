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
#include "model/config.h"
#include "model/family.h"
#include "plan/plan.h"
#include "plan/spec_check.h"
#include "proto/text.h"
#include "runtime/ckpt/ckpt.h"
#include "runtime/comm/comm_host.h"
#include "runtime/data/formats.h"
#include "runtime/optim/optimizer.h"

#define DEADLINE_MS 60000

/* ---- job file -> plan -------------------------------------------------------------------------
 */

static JobSpec *parse_spec(const struct gang_spec *s)
{
    char data_path[512], model[600], text[4096];
    const struct golden *g = s->golden;
    snprintf(data_path, sizeof(data_path), "%s",
             s->data_path != NULL ? s->data_path : golden_path(g, "train.bin"));
    snprintf(model, sizeof(model), "%s: %s", s->config != NULL ? "config" : "path",
             s->config != NULL       ? s->config
             : s->model_path != NULL ? s->model_path
                                     : golden_path(g, ""));
    snprintf(text, sizeof(text),
             "name: case\n"
             "model: {%s}\n"
             "data: {order: %s, train: [{path: %s, format: u16, window: %s}]}\n"
             "training:\n"
             "  steps: %lld\n"
             "  seq_len: %lld\n"
             "  global_batch_size: %lld\n"
             "  micro_batch_size: %lld\n"
             "  precision: %s\n"
             "  clip_grad_norm: %s\n"
             "  optimizer: {%s}\n"
             "  lr_schedule: {warmup_steps: 5, decay: cosine, decay_steps: 20, min_lr_ratio: 0.1}\n"
             "parallel: {data: %lld, bucket_mb: %s}\n"
             "resources: {devices: %lld, type: cpu, backend: %s}\n"
             "checkpoint: {%s}\n",
             model, s->order ? s->order : "sequential", data_path, s->window ? s->window : "T+1",
             (long long)(s->steps ? s->steps : 20), (long long)g->seq_len,
             (long long)(s->batch ? s->batch : g->batch), (long long)(s->micro ? s->micro : 1),
             s->precision ? s->precision : "fp64", s->clip ? s->clip : "1.0",
             s->optimizer ? s->optimizer
                          : "name: adamw, lr: 0.002, betas: [0.9, 0.95], weight_decay: 0.1",
             (long long)(s->data ? s->data : 1), s->bucket_mb ? s->bucket_mb : "0.05",
             (long long)(s->data ? s->data : 1), s->backend ? s->backend : "ref",
             s->checkpoint ? s->checkpoint : "interval: 0, export_at_end: false");
    ProtobufCMessage *message;
    struct error err = {0};
    if (text_parse("job.yaml", text, strlen(text), &job_spec__descriptor, &message, &err) != 0 ||
        spec_check((JobSpec *)message, &err) != 0)
        fail_msg("%s", err.text);
    return (JobSpec *)message;
}

static ModelFacts *read_model(const JobSpec *spec)
{
    char path[600], *text;
    size_t len;
    struct error err = {0};
    ModelFacts *facts = malloc(sizeof(*facts));
    assert_non_null(facts);
    model_facts__init(facts);
    if (spec->model->path != NULL) {
        snprintf(path, sizeof(path), "%s/config.json", spec->model->path);
        facts->path = strdup(spec->model->path);
    } else {
        snprintf(path, sizeof(path), "%s", spec->model->config);
    }
    if (fs_read_file(path, 1 << 20, &text, &len, &err) != 0 ||
        config_parse(path, text, len, &facts->config, &err) != 0)
        fail_msg("%s", err.text);
    free(text);
    facts->has_num_params = 1;
    facts->num_params = family_num_params(facts->config);
    return facts;
}

static void read_data(const SourceSpec *source, DataFacts *facts)
{
    struct error err = {0};
    struct token_file *file = NULL;
    enum data_format format;
    if (formats_parse(source->format, &format, &err) != 0 ||
        formats_open(&file, NULL, source->path, format, &err) != 0)
        fail_msg("%s", err.text);
    data_facts__init(facts);
    facts->path = source->path;
    facts->format = source->format;
    facts->has_num_tokens = facts->has_size_bytes = 1;
    facts->num_tokens = formats_num_tokens(file);
    facts->size_bytes = formats_size_bytes(file);
    formats_close(file);
}

Plan *gang_plan(const struct gang_spec *s)
{
    static DeviceInfo devices[GANG_MAX_RANKS];
    DeviceInfo *device_list[GANG_MAX_RANKS];
    for (int i = 0; i < GANG_MAX_RANKS; i++) {
        device_info__init(&devices[i]);
        devices[i].has_index = devices[i].has_peak_flops_fp32 = 1;
        devices[i].index = i;
        devices[i].peak_flops_fp32 = 1e11;
        device_list[i] = &devices[i];
    }
    NodeInfo node = NODE_INFO__INIT, *nodes[] = {&node};
    node.name = (char *)"here";
    node.has_cores = 1;
    node.cores = 2;
    node.n_devices = GANG_MAX_RANKS;
    node.devices = device_list;
    ClusterSpec cluster = CLUSTER_SPEC__INIT;
    cluster.n_nodes = 1;
    cluster.nodes = nodes;

    JobSpec *spec = parse_spec(s);
    ModelFacts *model = read_model(spec);
    DataFacts data;
    read_data(spec->data->train[0], &data);
    const DataFacts *train[] = {&data};
    struct plan_input in = {
        .spec = spec,
        .model = model,
        .train = train,
        .num_train = 1,
        .cluster = &cluster,
    };
    Plan *plan;
    struct error err = {0};
    if (plan_build(&in, &plan, &err) != 0)
        fail_msg("%s", err.text);
    job_spec__free_unpacked(spec, NULL);
    model_facts__free_unpacked(model, NULL);
    return plan;
}

/* ---- ranks as threads -------------------------------------------------------------------------
 */

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

/* What tandem-node does when a rank leaves badly. */
static void abort_gang(struct gang *g, int culprit)
{
    if (g->segment_fd < 0)
        return;
    struct stat st;
    ASSERT(fstat(g->segment_fd, &st) == 0);
    void *segment =
        mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, g->segment_fd, 0);
    ASSERT(segment != MAP_FAILED);
    char reason[64];
    snprintf(reason, sizeof(reason), "rank %d left with code 1", culprit);
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
        .deadline_ms = DEADLINE_MS,
    };
    rank->rc = rank_run(&options, &rank->retryable, &rank->err);
    if (rank->rc != 0)
        abort_gang(g, rank->idx);
    return NULL;
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
        .weights = buffers,
        .exp_avg = moments ? buffers + n : NULL,
        .exp_avg_sq = moments ? buffers + 2 * n : NULL,
    };
    if (ckpt_load(ckpt_dir, &state, &meta, &err) != 0)
        fail_msg("%s", err.text);
    params_free(&table);
    return buffers;
}

char *gang_make_dir(void)
{
    char *dir = strdup("/tmp/tandem-gang-XXXXXX");
    assert_non_null(dir);
    assert_non_null(mkdtemp(dir));
    return dir;
}

void gang_remove_dir(char *dir)
{
    fs_remove_tree(dir, NULL);
    free(dir);
}
