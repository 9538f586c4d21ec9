/* tandem admin restore: runs the tandemd beside us, which knows how. */
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <unistd.h>

#include "base/fs.h"
#include "clients/cli/admin.h"
#include "clients/cli/args.h"

static int run(struct cli *cli, int argc, char **argv)
{
    const char *data_dir = NULL, *file;
    const struct arg_flag flags[] = {{"data-dir", 'd', ARG_TEXT, &data_dir, NULL}, {0}};
    int n = args_parse(flags, argc, argv, &file, 1);
    (void)cli;
    if (n < 0) {
        return EXIT_USAGE;
    }
    if (n == 0 || !data_dir) {
        return cli_usage(argv[0],
                         n == 0 ? "which backup?" : "--data-dir D: where the server's data is");
    }
    char dir[PATH_MAX], program[PATH_MAX];
    struct error err;
    if (fs_self_dir(dir, sizeof dir, &err)) {
        return cli_fail(&err);
    }
    if (!fs_join(program, sizeof program, dir, "tandemd")) {
        error_set(&err, ERR_INVALID_ARGUMENT, "%s: path is too long", dir);
        return cli_fail(&err);
    }
    char *args[] = {program,
                    (char[]){"--restore"},
                    (char *)(uintptr_t)file,
                    (char[]){"--data-dir"},
                    (char *)(uintptr_t)data_dir,
                    NULL};
    execv(program, args);
    error_errno(&err, errno, "start %s", program);
    return cli_fail(&err);
}

const struct verb admin_restore = {
    .name = "restore",
    .args = "FILE --data-dir D",
    .help = "put a backup in place of a stopped server's database",
    .text =
        "To be run on the server's host, as its user, while tandemd is stopped. The backup is "
        "checked\nfirst; the old database is kept beside it. Tokens that were revoked and users "
        "that were\ndisabled since the backup stay so.\n\n"
        "  tandem admin restore /backup/tandem-2026-03-01.db --data-dir ~/tandem\n",
    .run = run,
    .text_only = true,
};
