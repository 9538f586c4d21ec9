#include "runtime/optim/lr.h"

#include <math.h>
#include <string.h>

/* Share of the way from begin to end, held at 1 behind it. */
static double progress(int64_t begin, int64_t end, int64_t n)
{
    if (n >= end)
        return 1.0;
    return (double)(n - begin) / (double)(end - begin);
}

/* From 1 down to floor. */
static double fall_linear(double floor, double share)
{
    return floor + (1.0 - floor) * (1.0 - share);
}

static double fall_cosine(double floor, double share)
{
    return floor + (1.0 - floor) * 0.5 * (1.0 + cos(M_PI * share));
}

/* wsd: where the fall begins. */
static int64_t wsd_begin(const LrScheduleSpec *s, int64_t total_steps)
{
    int64_t length = s->decay_steps > 0 ? s->decay_steps : total_steps / 10;
    return total_steps - (length > 0 ? length : 1);
}

double lr_at(const TrainingSpec *training, int64_t total_steps, int64_t n)
{
    const LrScheduleSpec *s = training->lr_schedule;
    double peak = training->optimizer->lr, floor = s->min_lr_ratio;
    if (n <= s->warmup_steps)
        return peak * (double)n / (double)s->warmup_steps;
    int64_t end = s->decay_steps > 0 ? s->decay_steps : total_steps;
    if (strcmp(s->decay, "cosine") == 0)
        return peak * fall_cosine(floor, progress(s->warmup_steps, end, n));
    if (strcmp(s->decay, "linear") == 0)
        return peak * fall_linear(floor, progress(s->warmup_steps, end, n));
    if (strcmp(s->decay, "wsd") == 0 && n > wsd_begin(s, total_steps))
        return peak * fall_linear(floor, progress(wsd_begin(s, total_steps), total_steps, n));
    return peak;
}
