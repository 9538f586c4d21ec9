#include "kernels/cusim/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/cusim/engine.h"

namespace cusim
{

static struct schedule now_taken;
static bool is_set;

struct schedule *schedule_now()
{
    if (!is_set) {
        const char *text = getenv("CUSIM_SCHEDULE");
        if (cusim_schedule_text(text ? text : "forward,eager,1") != 0) {
            fail("CUSIM_SCHEDULE=%s: not THREADS,STREAMS,SEED with forward, reverse or random, "
                 "then eager, lazy or random",
                 text);
        }
    }
    return &now_taken;
}

/* Xorshift: the seed is never 0. */
unsigned schedule_draw(unsigned below)
{
    uint64_t x = schedule_now()->state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    now_taken.state = x;
    return (unsigned)((x >> 20) % below);
}

static int choice(const char *text, size_t length, const char *const names[3])
{
    for (int i = 0; i < 3; i++) {
        if (strlen(names[i]) == length && strncmp(text, names[i], length) == 0) {
            return i;
        }
    }
    return -1;
}

} // namespace cusim

void cusim_schedule(enum cusim_threads threads, enum cusim_streams streams, uint64_t seed)
{
    cusim::now_taken = {threads, streams, seed * 0x9E3779B97F4A7C15u | 1};
    cusim::is_set = true;
}

int cusim_schedule_text(const char *text)
{
    static const char *const threads[] = {"forward", "reverse", "random"};
    static const char *const streams[] = {"eager", "lazy", "random"};
    const char *comma = strchr(text, ',');
    const char *second = comma ? strchr(comma + 1, ',') : nullptr;
    if (!second) {
        return -1;
    }
    int t = cusim::choice(text, (size_t)(comma - text), threads);
    int s = cusim::choice(comma + 1, (size_t)(second - comma - 1), streams);
    char *end;
    uint64_t seed = strtoull(second + 1, &end, 10);
    if (t < 0 || s < 0 || end == second + 1 || *end) {
        return -1;
    }
    cusim_schedule((enum cusim_threads)t, (enum cusim_streams)s, seed);
    return 0;
}
