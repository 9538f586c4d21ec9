#include "server/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/cluster.h"
#include "proto/names.h"
#include "proto/text.h"
#include "server/rpc/listener.h"

#define SCHEDULER_SETS_MAX 32

static const char help[] =
    "tandemd - the controller of Tandem: takes training jobs, queues them, runs them, keeps their\n"
    "curves, logs and checkpoints.\n"
    "\n"
    "Usage: tandemd --dev --data-dir DIR [--listen ADDR]... [--devices N | --cluster FILE]\n"
    "       tandemd --config FILE [--check]\n"
    "       tandemd --restore FILE --data-dir DIR\n"
    "\n"
    "  --dev            one implicit admin; no TLS, this host only\n"
    "  --data-dir DIR   database, job folders, sockets, tokens; made if it isn't there (0700); on "
    "a\n"
    "                   local disk; one server at a time\n"
    "  --listen ADDR    host:port on loopback (port 0 = any free one) or unix:/path; may be "
    "repeated.\n"
    "                   DIR/tandemd.sock is always served\n"
    "  --devices N      CPU devices to offer, more than there are cores if you like (default: "
    "cores);\n"
    "                   each has its share of the memory, so a rank may take 1 / N of it\n"
    "  --cluster FILE   nodes, devices and how they hang together; nodes of CPU devices are parts "
    "of "
    "this\n"
    "                   host (examples/cluster-this-host.yaml)\n"
    "  --config FILE    data_dir, listen, tls, limits and more from a YAML file (`tandem admin "
    "init`\n"
    "                   writes one); callers need tokens, but for who may open DIR/tandemd.sock.\n"
    "                   The flags above win over it\n"
    "  --scheduler KEY=VALUE  a field of the file's section `scheduler`: min_run_s=0; may be "
    "repeated\n"
    "  --check          say what is wrong with the file, or what it comes to; start nothing\n"
    "  --restore FILE   put a backup (Admin.Backup) in the place of DIR's database; no server may\n"
    "                   run on DIR; jobs that do are stopped; the old database is kept\n"
    "  --record DIR     record all that happens to jobs there, for tandem-replay: job files, no\n"
    "                   tokens; 8 starts of at most 256 MiB\n"
    "  --version, --help\n"
    "\n"
    "A first run:\n"
    "  tandemd --dev --data-dir ~/tandem &\n"
    "  tandem submit job.yaml --follow      # finds the server through ~/.config/tandem\n"
    "\n"
    "Over TCP callers need the token in DIR/dev-token; the socket needs none, its folder is yours\n"
    "alone. TERM or Ctrl-C stops the server within seconds; running jobs train on without it, and\n"
    "the next tandemd on the same DIR takes them over.\n";

static int parse_devices(struct options *o, const char *text, struct error *err)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || end == text || n < 1 || n > 1024) {
        return error_set(err, ERR_INVALID_ARGUMENT, "--devices %s: a number from 1 to 1024", text);
    }
    o->devices = (int32_t)n;
    return 0;
}

static int take(struct options *o, int letter, const char *value, struct error *err)
{
    switch (letter) {
    case 'D':
        o->dev = true;
        return 0;
    case 'r':
        o->restore = value;
        return 0;
    case 'R':
        o->record = value;
        return 0;
    case 'k':
        o->check = true;
        return 0;
    case 'd':
        if (snprintf(o->data_dir, sizeof o->data_dir, "%s", value) >= (int)sizeof o->data_dir) {
            return error_set(err, ERR_INVALID_ARGUMENT, "--data-dir: the path is too long");
        }
        return 0;
    case 'l':
        if (o->num_listen == OPTIONS_LISTEN_MAX - 1) {
            return error_set(err, ERR_INVALID_ARGUMENT, "--listen: too many addresses");
        }
        o->listen[o->num_listen++] = value;
        return 0;
    case 'n':
        return parse_devices(o, value, err);
    case 'c':
        settings_free(&o->file);
        return settings_read(&o->file, value, err);
    case 'C':
        o->cluster_file = value;
        return 0;
    case 'h':
        fputs(help, stdout);
        return 1;
    case 'V':
        puts("tandemd " TANDEM_VERSION);
        return 1;
    default:
        return error_set(err, ERR_INVALID_ARGUMENT, "see tandemd --help");
    }
}

/* The file's section, and what --scheduler changes of it. */
static int take_scheduler(struct options *o, const char *const *sets, int num, struct error *err)
{
    static const SchedulerConfig defaults = SCHEDULER_CONFIG__INIT;
    const SchedulerConfig *from =
        o->file.values && o->file.values->scheduler ? o->file.values->scheduler : &defaults;
    o->scheduler = (SchedulerConfig *)text_clone(&from->base);
    for (int i = 0; i < num; i++) {
        char key[64];
        const char *equals = strchr(sets[i], '=');
        size_t len = equals ? (size_t)(equals - sets[i]) : sizeof key;
        struct error why;
        if (len >= sizeof key) {
            return error_set(err, ERR_INVALID_ARGUMENT, "--scheduler %s: wants KEY=VALUE", sets[i]);
        }
        snprintf(key, sizeof key, "%.*s", (int)len, sets[i]);
        if (text_set(&o->scheduler->base, key, equals + 1, &why) != 0) {
            return error_set(err, why.code, "--scheduler %s: %s", sets[i], why.text);
        }
        if (settings_check_scheduler(o->scheduler, &(const char *){NULL}, &why) != 0) {
            return error_set(err, why.code, "--scheduler %s: %s", sets[i], why.text);
        }
    }
    return 0;
}

/* What only the flags have said. */
static int check_flags(const struct options *o, struct error *err)
{
    if (!*o->data_dir) {
        return error_set(err, ERR_INVALID_ARGUMENT, "--data-dir DIR is needed; see tandemd --help");
    }
    for (int i = 0; i < o->num_listen; i++) {
        if (listener_check(o->listen[i], false, err)) {
            return -1;
        }
    }
    return 0;
}

static int take_listen(struct options *o, struct error *err)
{
    const struct settings *f = &o->file;
    const ServerConfig *c = f->values;
    char field[32];
    struct error why;
    bool flags = o->num_listen > 0;
    if (!flags && c->n_listen > OPTIONS_LISTEN_MAX - 1) {
        return settings_fail(f, err, "listen", "at most %d addresses, these are %zu",
                             OPTIONS_LISTEN_MAX - 1, c->n_listen);
    }
    for (size_t i = 0; !flags && i < c->n_listen; i++) {
        o->listen[o->num_listen++] = c->listen[i];
    }
    for (int i = 0; i < o->num_listen; i++) {
        if (listener_check(o->listen[i], c->tls, &why)) {
            snprintf(field, sizeof field, "listen.%d", i);
            return flags ? error_set(err, why.code, "%s", why.text)
                         : settings_fail(f, err, field, "%s", why.text);
        }
    }
    return 0;
}

/* What there is comes from one of them. */
static int take_cluster(struct options *o, struct error *err)
{
    if (o->cluster_file && cluster_read(o->cluster_file, &o->cluster, err) != 0) {
        return -1;
    }
    if (o->cluster && o->devices) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "devices and a cluster file: one of them; the file says how many there "
                         "are");
    }
    return 0;
}

/* The file's values, where no flag has said otherwise. */
static int take_config(struct options *o, struct error *err)
{
    const struct settings *f = &o->file;
    const ServerConfig *c = f->values;
    if (o->dev && c->tls) {
        return settings_fail(f, err, "tls",
                             "--dev is for one user on this host; leave --dev out to serve others");
    }
    if (!*o->data_dir && c->data_dir) {
        if (c->data_dir[0] != '/' || strlen(c->data_dir) >= sizeof o->data_dir) {
            return settings_fail(f, err, "data_dir", "%s: wants an absolute path", c->data_dir);
        }
        snprintf(o->data_dir, sizeof o->data_dir, "%s", c->data_dir);
    }
    if (!*o->data_dir) {
        return settings_fail(f, err, "data_dir", "is needed (or --data-dir)");
    }
    if (c->devices < 0 || c->devices > 1024) {
        return settings_fail(f, err, "devices", "%d: wants 0 (the cores) to 1024", c->devices);
    }
    o->devices = o->devices ? o->devices : c->devices;
    o->record = o->record ? o->record : c->record_dir;
    if (!o->cluster_file && c->cluster_file) {
        struct error why;
        if (c->cluster_file[0] != '/') {
            return settings_fail(f, err, "cluster_file", "%s: the path must be absolute",
                                 c->cluster_file);
        }
        if (cluster_read(c->cluster_file, &o->cluster, &why) != 0) {
            return settings_fail(f, err, "cluster_file", "%s", why.text);
        }
    }
    return take_listen(o, err) || settings_check(f, err) ? -1 : 0;
}

/* ---- what it comes to ---------------------------------------------------------------------- */

static void print_tls(const TlsConfig *t)
{
    printf("tls        certificate %s, key %s\n", t->cert_file, t->key_file);
    if (t->client_ca_file) {
        printf("clients    %s a certificate of %s, and a token\n",
               t->require_client_cert ? "need" : "may show", t->client_ca_file);
    } else {
        printf("clients    need a token\n");
    }
}

static void print_roots(const ServerConfig *c)
{
    if (!c->n_roots) {
        printf("roots      none: jobs of every tenant may read all that this user can\n");
    }
    for (size_t i = 0; i < c->n_roots; i++) {
        const Roots *r = c->roots[i];
        printf("roots      %s:", r->tenant ? r->tenant : "every other tenant");
        for (size_t k = 0; k < r->n_read; k++) {
            printf(" %s", r->read[k]);
        }
        for (size_t k = 0; k < r->n_write; k++) {
            printf(" %s (writes)", r->write[k]);
        }
        putchar('\n');
    }
    for (size_t i = 0; i < c->n_run_as; i++) {
        printf("run as     tenant %s: user %s\n", c->run_as[i]->tenant, c->run_as[i]->user);
    }
}

static void print_cluster(const ClusterSpec *cluster)
{
    size_t num = 0;
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        num += cluster->nodes[i]->n_devices;
    }
    printf("cluster    %zu node%s with %zu device%s of %zu type%s\n", cluster->n_nodes,
           cluster->n_nodes == 1 ? "" : "s", num, num == 1 ? "" : "s", cluster->n_types,
           cluster->n_types == 1 ? "" : "s");
}

void options_print(const struct options *o)
{
    const ServerConfig *c = o->config;
    printf("data       %s\n", o->data_dir);
    printf("listens    unix:%s/tandemd.sock, for the operator and this host's jobs\n", o->data_dir);
    for (int i = 0; i < o->num_listen; i++) {
        bool tls = c && c->tls && strncmp(o->listen[i], "unix:", 5) != 0;
        printf("listens    %s%s\n", o->listen[i], tls ? ", TLS" : "");
    }
    if (o->cluster) {
        print_cluster(o->cluster);
    } else if (o->devices) {
        printf("devices    %d\n", o->devices);
    } else {
        printf("devices    the cores of this host\n");
    }
    if (c && c->tls) {
        print_tls(c->tls);
    }
    if (c) {
        print_roots(c);
    }
    printf("All of it can be used. Nothing was started.\n");
}

int options_parse(struct options *o, int argc, char **argv, struct error *err)
{
    static const struct option names[] = {
        {"dev", no_argument, NULL, 'D'},
        {"data-dir", required_argument, NULL, 'd'},
        {"listen", required_argument, NULL, 'l'},
        {"devices", required_argument, NULL, 'n'},
        {"restore", required_argument, NULL, 'r'},
        {"record", required_argument, NULL, 'R'},
        {"config", required_argument, NULL, 'c'},
        {"check", no_argument, NULL, 'k'},
        {"cluster", required_argument, NULL, 'C'},
        {"help", no_argument, NULL, 'h'},
        {"scheduler", required_argument, NULL, 'S'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    memset(o, 0, sizeof *o);
    int letter, num_sets = 0;
    const char *sets[SCHEDULER_SETS_MAX];
    while ((letter = getopt_long(argc, argv, "h", names, NULL)) != -1) {
        if (letter == 'S' && num_sets == SCHEDULER_SETS_MAX) {
            return error_set(err, ERR_INVALID_ARGUMENT, "--scheduler: too many of them");
        }
        if (letter == 'S') {
            sets[num_sets++] = optarg;
            continue;
        }
        int rc = take(o, letter, optarg, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (optind < argc) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: not understood; see tandemd --help",
                         argv[optind]);
    }
    if (!o->dev && !o->file.values && !o->restore) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "say --dev, for one user on one host, or --config FILE; see tandemd "
                         "--help");
    }
    o->config = o->file.values;
    if ((o->config ? take_config(o, err) : check_flags(o, err)) || take_cluster(o, err)) {
        return -1;
    }
    return take_scheduler(o, sets, num_sets, err);
}
