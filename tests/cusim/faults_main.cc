/* cusim_faults: the names of the faults. cusim_faults NAME: runs one. cusim_faults right [NAME]:
 * the right twin of one, or of all. */
#include <string.h>

#include "tests/cusim/faults.h"

int main(int argc, char **argv)
{
    const struct fault *const tables[] = {thread_faults, memory_faults, stream_faults};
    int right = argc > 1 && strcmp(argv[1], "right") == 0;
    const char *name = argc > 1 + right ? argv[1 + right] : nullptr;
    int rc = 0;
    for (const struct fault *f : tables) {
        for (; f->name; f++) {
            if (argc == 1) {
                puts(f->name);
            } else if (right ? !name || strcmp(f->name, name) == 0 : strcmp(f->name, name) == 0) {
                int one = f->run(right);
                printf("%s ran to its end: %d\n", f->name, one);
                rc = rc ? rc : one;
            }
        }
    }
    return rc;
}
