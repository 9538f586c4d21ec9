#include "clients/cli/cli.h"

static int run(struct cli *cli, int argc, char **argv)
{
    (void)cli;
    (void)argc;
    (void)argv;
    printf("tandem %s\n", TANDEM_VERSION);
    return EXIT_DONE;
}

extern const struct verb verb_version;
const struct verb verb_version = {
    .name = "version",
    .args = "",
    .help = "print the version of this program",
    .text = "The server's version is shown by `tandem doctor`.\n",
    .run = run,
};
