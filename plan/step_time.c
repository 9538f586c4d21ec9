#include "plan/step_time.h"

#include <stdlib.h>
#include <string.h>

#include "plan/kernels.h"
#include "plan/plan.h"

/* Micro-batches in the middle of a step are all alike: from the second on, each adds the same to
 * the streams and to the host. So a step of many is told from two of few; an even number lies
 * between them, as slots take turns. */
#define FEW 2
#define MORE 4

/* A plan whose step has fewer micro-batches; all else is borrowed. */
struct shortened {
    Plan plan;
    Stage stage, *stages[1];
    Action repeat, **actions, *was;
};

static Action *find_repeat(const Stage *stage)
{
    for (size_t i = 0; i < stage->n_actions; i++) {
        if (stage->actions[i]->kind == ACTION_REPEAT) {
            return stage->actions[i];
        }
    }
    return NULL;
}

/* False: it has few as it is. */
static bool shorten(struct shortened *s, const Plan *plan)
{
    s->was = find_repeat(plan->stages[0]);
    if (!s->was || s->was->times <= MORE) {
        return false;
    }
    s->plan = *plan;
    s->stage = *plan->stages[0];
    s->repeat = *s->was;
    s->actions = malloc(s->stage.n_actions * sizeof(Action *));
    ASSERT(s->actions);
    for (size_t i = 0; i < s->stage.n_actions; i++) {
        Action *a = s->stage.actions[i];
        s->actions[i] = a == s->was ? &s->repeat : a;
    }
    s->stage.actions = s->actions;
    s->stages[0] = &s->stage;
    s->plan.stages = s->stages;
    return true;
}

static int play(struct shortened *s, const struct kernel_rates *rates, double *device_s,
                double *host_s, struct error *err)
{
    double device[2], host[2], more = s->was->times - MORE;
    for (int i = 0; i < 2; i++) {
        s->repeat.times = i == 0 ? FEW : MORE;
        if (kernel_seconds(&s->plan, rates, &device[i], &host[i], err) != 0) {
            return -1;
        }
    }
    *device_s = device[1] + more * (device[1] - device[0]) / (MORE - FEW);
    *host_s = host[1] + more * (host[1] - host[0]) / (MORE - FEW);
    return 0;
}

/* 0: it can't be told that way. */
static double by_launches(const Plan *plan, const ClusterSpec *cluster)
{
    struct kernel_rates rates;
    struct error why;
    double device_s, host_s;
    if (strcmp(plan->backend, "cuda") != 0 || plan->n_unbuilt > 0 || plan->n_stages != 1 ||
        plan->model->config->num_hidden_layers > STEP_TIME_MAX_LAYERS ||
        kernel_rates_find(&rates, plan, cluster, KERNEL_ATTENTION_OWN, &why) != 0) {
        return 0;
    }
    struct shortened s;
    bool is_long = shorten(&s, plan);
    int rc = is_long ? play(&s, &rates, &device_s, &host_s, &why)
                     : kernel_seconds(plan, &rates, &device_s, &host_s, &why);
    if (is_long) {
        free(s.actions);
    }
    return rc != 0 ? 0 : device_s > host_s ? device_s : host_s;
}

struct step_time step_time_find(const Plan *plan, const ClusterSpec *cluster)
{
    const TrainingSpec *t = plan->spec->training;
    double step_s = by_launches(plan, cluster);
    if (!(step_s > 0)) {
        return step_time_by_formula(plan);
    }
    double tokens = (double)t->global_batch_size * (double)t->seq_len;
    return (struct step_time){.step_s = step_s,
                              .mfu = tokens * plan->flops_per_token / step_s / plan->peak_flops /
                                     (double)plan->mesh->num_ranks,
                              .by_launches = true};
}

struct step_time step_time_by_formula(const Plan *plan)
{
    double step_s = plan_step_seconds(plan);
    return (struct step_time){.step_s = step_s,
                              .mfu = step_s <= 0  ? 0
                                     : plan->cost ? plan->cost->mfu
                                                  : PLAN_ASSUMED_MFU};
}
