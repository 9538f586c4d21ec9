/* tandem-tool: what needs the runtime but no gang. `tandem generate` and `tandem doctor` run it.
 * One thread, and the kernels' workers. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "runtime/tool/generate.h"
#include "runtime/tool/gpus.h"

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "generate") == 0)
        return generate_main(strcmp(argv[0], "tandem") == 0 ? "tandem" : "tandem-tool", argc - 1,
                             argv + 1);
    if (argc > 1 && strcmp(argv[1], "gpus") == 0)
        return gpus_main(argc - 1, argv + 1);
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    fputs(
        "usage: tandem-tool generate --model DIR --prompt TEXT [...]\n"
        "       tandem-tool gpus\n"
        "  tandem-tool generate --help lists its flags; gpus says which GPUs ranks can use here\n",
        help ? stdout : stderr);
    return help ? 0 : 2;
}
