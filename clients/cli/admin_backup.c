/* tandem admin backup */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "clients/cli/admin.h"
#include "clients/cli/args.h"
#include "clients/cli/human.h"

/* A large database on a slow disk. */
enum { BACKUP_DEADLINE_MS = 3600 * 1000 };

static void row(struct table *t, const ProtobufCMessage *message, int64_t now_us)
{
    const BackupReply *m = (const BackupReply *)message;
    (void)now_us;
    table_cell(t, m->path, NULL, NULL);
    admin_cell_int(t, m->size_bytes);
    admin_cell_int(t, m->num_jobs);
    table_cell(t, m->sha256, NULL, NULL);
}

static const char *const columns[] = {"path", ">size_bytes", ">jobs", "sha256", NULL};
static const struct admin_list list = {columns, row, ""};

/* The path is one of the server's host; a relative one is taken to be on the same host. */
static int make_absolute(const char *path, char out[PATH_MAX], struct error *err)
{
    char cwd[PATH_MAX] = "";
    if (path[0] != '/' && !getcwd(cwd, sizeof cwd)) {
        return error_errno(err, errno, "working folder");
    }
    int n = snprintf(out, PATH_MAX, "%s%s%s", cwd, cwd[0] ? "/" : "", path);
    return n < PATH_MAX ? 0
                        : error_set(err, ERR_INVALID_ARGUMENT, "%s: the path is too long", path);
}

static int run(struct cli *cli, int argc, char **argv)
{
    const struct arg_flag flags[] = {{0}};
    BackupRequest q = BACKUP_REQUEST__INIT;
    const char *word;
    char path[PATH_MAX];
    struct error err;
    int n = args_parse(flags, argc, argv, &word, 1);
    if (n < 0) {
        return EXIT_USAGE;
    }
    if (n == 1) {
        if (make_absolute(word, path, &err)) {
            return cli_fail(&err);
        }
        q.path = path;
    }
    ProtobufCMessage *reply;
    if (cli_call_within(cli, "Admin/Backup", &q.base, &backup_reply__descriptor, &reply,
                        BACKUP_DEADLINE_MS, &err)) {
        return cli_fail(&err);
    }
    const BackupReply *r = (const BackupReply *)reply;
    char text[PATH_MAX + 256], size[HUMAN_MAX];
    snprintf(text, sizeof text, "%s: %s, %lld job%s\nsha256 %s", r->path ? r->path : "?",
             human_bytes(size, (double)r->size_bytes), (long long)r->num_jobs,
             r->num_jobs == 1 ? "" : "s", r->sha256 ? r->sha256 : "?");
    admin_print_one(cli, &list, reply, text);
    protobuf_c_message_free_unpacked(reply, NULL);
    return EXIT_DONE;
}

const struct verb admin_backup = {
    .name = "backup",
    .args = "[PATH]",
    .help = "copy the database while the server works",
    .text =
        "PATH is on the server's host and must not exist; DATA_DIR/backup/TIME.db if absent. "
        "The copy\nis whole and of one moment; jobs, events, curves, users and hashes of tokens "
        "are in it,\ncheckpoints and logs aren't. `tandem admin restore` puts one back.\n\n"
        "  tandem admin backup /backup/tandem-$(date +%F).db\n",
    .run = run,
};
