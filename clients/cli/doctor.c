#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "clients/cli/args.h"
#include "clients/cli/doctor_gpus.h"
#include "clients/cli/human.h"
#include "clients/cli/verbs.h"
#include "proto/rpc_tls.h"

enum { FILES_MIN = 1024, CERT_MIN_S = 14 * 86400, CLOCK_SLACK_US = 2000000 };
#define DISK_MIN_BYTES 5e9
#define MEMORY_MIN_BYTES 2e9

struct doctor {
    const struct cli *cli;
    int faults;
    bool nobody_there; /* at the server's address */
};

enum verdict { GOOD, WARN, BAD };

static void line(struct doctor *d, enum verdict v, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void line(struct doctor *d, enum verdict v, const char *what, const char *fmt, ...)
{
    static const char *const words[] = {"ok  ", "warn", "FAIL"};
    static const char *const colours[] = {"\033[32m", "\033[33m", "\033[31m"};
    bool c = d->cli->colour;
    va_list ap;
    printf("%s%s%s  %-12s ", c ? colours[v] : "", words[v], c ? "\033[0m" : "", what);
    va_start(ap, fmt);
    vprintf(fmt, ap);
    va_end(ap);
    putchar('\n');
    d->faults += v == BAD;
}

static void check_disk(struct doctor *d, const char *what, const char *path)
{
    struct statvfs s;
    char h[HUMAN_MAX];
    if (statvfs(path, &s) != 0) {
        line(d, WARN, what, "%s: can't be looked at from here", path);
        return;
    }
    double free_bytes = (double)s.f_bavail * (double)s.f_frsize;
    line(d, free_bytes < DISK_MIN_BYTES ? WARN : GOOD, what, "%s free in %s%s",
         human_bytes(h, free_bytes), path,
         free_bytes < DISK_MIN_BYTES ? "; checkpoints may not fit" : "");
}

static const char *days_text(char out[64], int64_t ends_s)
{
    int64_t days = (ends_s - clock_wall_us() / 1000000) / 86400;
    snprintf(out, 64, days < 0 ? "expired" : "%lld days left", (long long)days);
    return out;
}

static enum verdict days_verdict(int64_t ends_s)
{
    int64_t left_s = ends_s - clock_wall_us() / 1000000;
    return left_s < 0 ? BAD : left_s < CERT_MIN_S ? WARN : GOOD;
}

/* Who the server says it is, and who vouches for that; this client's own certificate. */
static void check_tls(struct doctor *d, const char *server)
{
    struct rpc_target target;
    struct rpc_trust trust;
    struct rpc_view view;
    struct error err;
    char days[64];
    if (rpc_target_parse(&target, server, NULL, &err) || !target.tls) {
        return;
    }
    if (rpc_trust_load(&trust, NULL, NULL, NULL, &err)) {
        line(d, BAD, "CA", "%s", err.text);
        return;
    }
    int r = rpc_tls_look(&target, &trust, &view, &err);
    line(d, GOOD, "CA", "%s%s", trust.ca_file, trust.ca_is_systems ? ", the system's" : "");
    if (view.version[0]) {
        line(d, view.trusted ? days_verdict(view.ends_s) : BAD, "certificate",
             "%s, %s, signed by %s, for %s", view.subject, days_text(days, view.ends_s),
             view.issuer, view.names);
    }
    if (r == 0) {
        line(d, GOOD, "TLS", "%s", view.version);
    } else if (err.code != ERR_UNAVAILABLE) {
        line(d, BAD, "TLS", "%s", err.text);
    }
    if (trust.cert_pem) {
        int64_t ends_s = rpc_tls_pem_ends_s(trust.cert_pem);
        line(d, days_verdict(ends_s), "own cert", "%s, %s", trust.cert_file,
             days_text(days, ends_s));
    }
    rpc_trust_free(&trust);
}

/* A server can't have started in the future. */
static void check_clock(struct doctor *d, const ServerInfo *s)
{
    int64_t ahead_us = s->started_us - clock_wall_us();
    if (s->has_started_us && ahead_us > CLOCK_SLACK_US) {
        line(d, WARN, "clock", "the server's is at least %lld s ahead of this machine's",
             (long long)(ahead_us / 1000000));
    }
}

/* The server: reachable, same version, token good. Its data folder, if it is on this machine. */
static int check_server(struct doctor *d, struct cli *cli)
{
    struct error err;
    struct rpc_channel *channel;
    if (cli_channel(cli, &channel, &err)) {
        line(d, BAD, "server", "%s", err.text);
        return EXIT_UNREACHABLE;
    }
    check_tls(d, cli->target);
    ServerInfoRequest q = SERVER_INFO_REQUEST__INIT;
    ProtobufCMessage *reply;
    if (cli_call(cli, "Admin/GetServerInfo", &q.base, &server_info__descriptor, &reply, &err)) {
        if (err.code == ERR_UNAVAILABLE || err.code == ERR_DEADLINE_EXCEEDED) {
            d->nobody_there =
                strstr(err.text, "connection refused") || strstr(err.text, "no such socket");
            line(d, BAD, "server", "%s", err.text);
            return EXIT_UNREACHABLE;
        }
        line(d, GOOD, "server", "%s answers", cli->target);
        line(d, err.code == ERR_UNIMPLEMENTED ? WARN : BAD, "token", "%s", err.text);
        return EXIT_FAILED;
    }
    const ServerInfo *s = (const ServerInfo *)reply;
    line(d, GOOD, "server", "%s answers", cli->target);
    line(d, GOOD, "token", "you are %s of tenant %s, role %s", s->user ? s->user : "?",
         s->tenant ? s->tenant : "?", s->role ? s->role : "?");
    check_clock(d, s);
    const char *version = s->version ? s->version : "?";
    if (strcmp(version, TANDEM_VERSION) == 0) {
        line(d, GOOD, "version", "%s on both sides", version);
    } else {
        line(d, WARN, "version", "the server is %s, this program %s", version, TANDEM_VERSION);
    }
    for (size_t i = 0; i < s->n_problems; i++) {
        line(d, BAD, "server", "%s", s->problems[i]);
    }
    if (s->data_dir && s->data_dir[0]) {
        check_disk(d, "disk", s->data_dir);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return EXIT_DONE;
}

static void check_machine(struct doctor *d)
{
    char h[HUMAN_MAX];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    struct rlimit files;
    line(d, GOOD, "cores", "%ld", cores);
    line(d, memory < MEMORY_MIN_BYTES ? WARN : GOOD, "memory", "%s", human_bytes(h, memory));
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        line(d, files.rlim_max < FILES_MIN ? WARN : GOOD, "open files", "%llu at most%s",
             (unsigned long long)files.rlim_max,
             files.rlim_max < FILES_MIN ? "; raise it with ulimit -n" : "");
    }
    const char *tmp = getenv("TMPDIR");
    check_disk(d, "scratch", tmp && tmp[0] == '/' ? tmp : "/tmp");
    char gpus[1024];
    bool good = doctor_gpus(gpus, sizeof gpus);
    line(d, good ? GOOD : WARN, "GPUs", "%s", gpus);
}

/* Variables that change how ranks compute, or how fast, or what they print. */
static void check_environment(struct doctor *d)
{
    static const struct {
        const char *name, *why;
    } hurtful[] = {
        {"TANDEM_CPU_LEVEL",
         "holds down the instructions that kernels use: slower, other rounding"},
        {"TANDEM_CUDA_PLUGIN", "another plug-in for GPUs than the one beside the programs"},
        {"TANDEM_CUDA_DRIVER", "another driver's library than the system's"},
        {"GRPC_VERBOSITY", "mixes gRPC's own lines into the output"},
        {"LD_PRELOAD", "goes into every rank"},
    };
    int found = 0;
    for (size_t i = 0; i < sizeof hurtful / sizeof *hurtful; i++) {
        const char *value = getenv(hurtful[i].name);
        if (value && value[0]) {
            line(d, WARN, "environment", "%s=%s: %s", hurtful[i].name, value, hurtful[i].why);
            found++;
        }
    }
    if (!found) {
        line(d, GOOD, "environment", "nothing set that gets in the way");
    }
}

static int run(struct cli *cli, int argc, char **argv)
{
    const struct arg_flag flags[] = {{0}};
    if (args_parse(flags, argc, argv, NULL, 0) < 0) {
        return EXIT_USAGE;
    }
    struct doctor d = {.cli = cli};
    int code = check_server(&d, cli);
    check_machine(&d);
    check_environment(&d);
    if (code == EXIT_UNREACHABLE) {
        bool is_here = cli->target && (strncmp(cli->target, "unix:", 5) == 0 ||
                                       strncmp(cli->target, "127.", 4) == 0);
        if (!cli->target || (is_here && d.nobody_there)) {
            printf("\nStart a server on this machine with: tandemd --dev --data-dir ~/tandem\n");
        }
        return code;
    }
    return d.faults ? EXIT_FAILED : EXIT_DONE;
}

const struct verb verb_doctor = {
    .name = "doctor",
    .help = "check that this machine and the server are fit to train",
    .text =
        "One line a check: the server, its certificate and your right to use it, versions, "
        "clocks,\n"
        "cores, memory, disk space, GPUs, and environment variables that would slow ranks down or "
        "change\n"
        "their results.\n\n"
        "Exit code: 0 all is well (warnings included), 1 something is broken, 4 no server.\n\n"
        "  tandem doctor\n",
    .run = run,
    .text_only = true,
};
