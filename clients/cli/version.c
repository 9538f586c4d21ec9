#include "clients/cli/verbs.h"

static int run(struct cli *cli, int argc, char **argv)
{
    (void)cli;
    (void)argc;
    (void)argv;
    printf("tandem %s\n", TANDEM_VERSION);
    return EXIT_DONE;
}

const struct verb verb_version = {
    .name = "version",
    .help = "print the version of this program",
    .text = "The server's version is shown by `tandem doctor`.\n",
    .run = run,
    .text_only = true,
};
