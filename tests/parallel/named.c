#include "named.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdio.h>

#include <cmocka.h>

const struct variant named_one_rank = {.data = 1, .tensor = 1, .micro = 1};

struct gang_spec named_spec(const struct shape_files *f, const struct variant *v)
{
    return (struct gang_spec){
        .golden = &f->sizes,
        .model_path = f->dir,
        .data_path = f->tokens,
        .steps = 1,
        .clip = "0",
        .optimizer = NAMED_SGD,
        .lr_schedule = "warmup_steps: 0, decay: constant",
        .data = v->data,
        .tensor = v->tensor,
        .zero_stage = v->zero_stage,
        .shard_size = v->shard_size,
        .micro = v->micro,
        .sequence_parallel = v->sequence_parallel,
    };
}

const char *named_words(const struct variant *v)
{
    static char words[160];
    snprintf(words, sizeof(words),
             "data %lld, tensor %lld%s, zero_stage %lld, shard_size %lld, micro %lld",
             (long long)v->data, (long long)v->tensor, v->sequence_parallel ? " (sequence)" : "",
             (long long)v->zero_stage, (long long)v->shard_size, (long long)v->micro);
    return words;
}

void named_check_close(const char *what, double got, double want)
{
    if (!(fabs(got - want) <= NAMED_SAME * fabs(want)))
        fail_msg("%s: %.17g, not %.17g (off by %.1e)", what, got, want, fabs(got / want - 1.0));
}

void named_check_same(const char *what, const struct whole *want, const struct whole *got)
{
    struct whole_distance d = whole_compare(want, got, NULL);
    if (!(d.l2 <= NAMED_SAME))
        fail_msg("%s: %s is off by %.1e", what, d.l2_name, d.l2);
}

/* Loss, norm and every gradient of the first step. */
void named_check_first_step(const char *what, const struct run *want, const struct run *got)
{
    named_check_close(what, got->gang.steps[0].loss, want->gang.steps[0].loss);
    named_check_close(what, got->gang.steps[0].grad_norm, want->gang.steps[0].grad_norm);
    named_check_same(what, &want->record.grads, &got->record.grads);
}
