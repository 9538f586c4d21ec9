/* tandem-sched-sim PROFILE FIRST COUNT: runs seeds until one fails; with COUNT 1 what happens is
 * shown. tandem-sched-sim SEED: that seed of all profiles. PROFILE "each" = all in turn. Exits 0,
 * 1 = a rule is broken, 2 usage. */
#include <stdlib.h>
#include <string.h>

#include "tests/sched/world.h"

/* How many seeds were needed to find a fault; 0 = none. */
static int64_t run(const struct world_profile *p, uint64_t first, uint64_t num)
{
    for (uint64_t i = 0; i < num; i++) {
        struct world *w = world_new(first + i, p);
        w->trace = num == 1 ? stdout : NULL;
        bool fine = world_run(w);
        if (!fine) {
            fprintf(stderr, "SCHED_PROFILE=%s SCHED_SEED=%llu: %s\n", p->name,
                    (unsigned long long)(first + i), w->why);
        } else if (num == 1) {
            printf("%s: %d jobs on %d devices: %lld passes, %lld starts, %lld of them backfilled, "
                   "%lld evictions\n",
                   p->name, w->num_jobs, w->fabric->num_devices, (long long)w->num_passes,
                   (long long)w->num_starts, (long long)w->num_backfills, (long long)w->num_stops);
        }
        world_free(w);
        if (!fine) {
            return (int64_t)i + 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 2 && argc != 4) {
        fprintf(stderr, "tandem-sched-sim PROFILE FIRST COUNT, or tandem-sched-sim SEED\n");
        return 2;
    }
    const char *name = argc == 4 ? argv[1] : "each";
    uint64_t first = strtoull(argc == 4 ? argv[2] : argv[1], NULL, 10);
    uint64_t num = argc == 4 ? strtoull(argv[3], NULL, 10) : 1;
    bool each = strcmp(name, "each") == 0, fine = true;
    for (const struct world_profile *p = world_profiles; p->name; p++) {
        if (each || strcmp(name, p->name) == 0) {
            int64_t needed = run(p, first, num);
            if (needed) {
                printf("%s %lld\n", p->name, (long long)needed);
            }
            fine = fine && !needed;
        }
    }
    return fine ? 0 : 1;
}
