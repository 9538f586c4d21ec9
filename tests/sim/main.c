/* tandem-sim PROFILE FIRST COUNT: runs seeds until one fails. With COUNT 1 every event is shown.
 * PROFILE "each" = all profiles in turn. Exits 0, 1 = a seed failed, 2 usage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "tandem-sim PROFILE FIRST COUNT\n");
        return 2;
    }
    uint64_t first = strtoull(argv[2], NULL, 10), num = strtoull(argv[3], NULL, 10);
    bool each = strcmp(argv[1], "each") == 0, fine = true;
    for (const struct sim_profile *p = sim_profiles; p->name; p++) {
        if (!each && strcmp(p->name, argv[1]) != 0) {
            continue;
        }
        uint64_t failed;
        char why[512];
        if (num == 1) {
            fine = sim_run(first, p, true, why, sizeof why) && fine;
            fprintf(stderr, "%s\n", why);
        } else if (!sim_run_seeds(p, first, num, &failed)) {
            printf("%s %llu\n", p->name, (unsigned long long)(failed - first + 1));
            fine = false;
        }
    }
    return fine ? 0 : 1;
}
