/* tandem admin init: certificates and a config file for a tandemd that other hosts reach. Asks no
 * server; run where tandemd is to run. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "clients/cli/admin.h"
#include "clients/cli/args.h"
#include "clients/cli/cert.h"

enum {
    MAX_HOSTS = 64,
    MAX_HOST_BYTES = 253,
    CA_DAYS = 3650,
    DAYS = 730,
    DAYS_MAX = 36500,
};
#define DAY_S ((int64_t)86400)
/* A clock that is a little behind takes a new certificate, too. */
#define BACKDATE_S ((int64_t)3600)

struct init {
    char data_dir[PATH_MAX], out[PATH_MAX];
    const char *listen, *client;
    char *hosts[MAX_HOSTS]; /* owned */
    int num_hosts;
    bool renew, require_client_cert;
    int64_t days;
    char ca[PATH_MAX + 32], ca_key[PATH_MAX + 32], cert[PATH_MAX + 32], key[PATH_MAX + 32],
        config[PATH_MAX + 32], client_cert[PATH_MAX + 96], client_key[PATH_MAX + 96];
};

/* ---- what is wanted ------------------------------------------------------------------------ */

static int add_host(struct init *in, const char *host, struct error *err)
{
    for (int i = 0; i < in->num_hosts; i++) {
        if (strcmp(in->hosts[i], host) == 0) {
            return 0;
        }
    }
    struct in6_addr any;
    size_t len = strlen(host);
    bool address = inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1;
    bool name = len > 0 && len <= MAX_HOST_BYTES && host[0] != '-' && host[0] != '.';
    for (size_t i = 0; name && i < len; i++) {
        name = isalnum((unsigned char)host[i]) || strchr("-._*", host[i]);
    }
    if (!address && !name) {
        return error_set(err, ERR_INVALID_ARGUMENT, "--host %.100s: neither a name nor an address",
                         host);
    }
    if (in->num_hosts == MAX_HOSTS) {
        return error_set(err, ERR_INVALID_ARGUMENT, "more than %d hosts", MAX_HOSTS);
    }
    in->hosts[in->num_hosts++] = strdup(host);
    return 0;
}

/* This host's name and addresses. */
static int add_this_host(struct init *in, struct error *err)
{
    char text[256] = "";
    struct ifaddrs *all;
    gethostname(text, sizeof text - 1);
    if (text[0] && add_host(in, text, err)) {
        return -1;
    }
    if (getifaddrs(&all) != 0) {
        return error_errno(err, errno, "this host's addresses");
    }
    int r = 0;
    for (struct ifaddrs *a = all; a && r == 0; a = a->ifa_next) {
        int family = a->ifa_addr ? a->ifa_addr->sa_family : AF_UNSPEC;
        bool ours = (family == AF_INET || family == AF_INET6) && !(a->ifa_flags & IFF_LOOPBACK);
        socklen_t len =
            family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        if (ours &&
            getnameinfo(a->ifa_addr, len, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0 &&
            !strchr(text, '%')) { /* link-local */
            r = add_host(in, text, err);
        }
    }
    freeifaddrs(all);
    return r;
}

static int choose_hosts(struct init *in, const struct arg_texts *given, struct error *err)
{
    static const char *const always[] = {"localhost", "127.0.0.1", "::1"};
    struct cert old;
    for (int i = 0; i < given->num; i++) {
        if (add_host(in, given->items[i], err)) {
            return -1;
        }
    }
    if (in->renew && given->num == 0) {
        if (cert_read(&old, in->cert, in->key, err)) {
            return error_wrap(err, "the names of the certificate that is there");
        }
        in->num_hosts = cert_hosts(&old, in->hosts, MAX_HOSTS);
        cert_free(&old);
    } else if (given->num == 0 && add_this_host(in, err)) {
        return -1;
    }
    for (int i = 0; i < 3; i++) {
        if (add_host(in, always[i], err)) {
            return -1;
        }
    }
    return 0;
}

static int make_absolute(char out[PATH_MAX], const char *path, struct error *err)
{
    char cwd[PATH_MAX] = "";
    bool absolute = path[0] == '/';
    if (!absolute && !getcwd(cwd, sizeof cwd)) {
        return error_errno(err, errno, "working folder");
    }
    if (snprintf(out, PATH_MAX, "%s%s%s", cwd, absolute ? "" : "/", path) >= PATH_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%.100s...: the path is too long", path);
    }
    /* They are written into a YAML file. */
    for (const char *p = out; *p; p++) {
        if ((unsigned char)*p < ' ' || *p == '"' || *p == '\\') {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "%s: choose a path without quotes, backslashes and control characters",
                             path);
        }
    }
    return 0;
}

static int choose_paths(struct init *in, const char *data_dir, const char *out, struct error *err)
{
    char fallback[PATH_MAX], etc[PATH_MAX + 8];
    const char *home = getenv("HOME");
    snprintf(fallback, sizeof fallback, "%s/tandem", home && home[0] == '/' ? home : "");
    if (make_absolute(in->data_dir, data_dir ? data_dir : fallback, err)) {
        return -1;
    }
    snprintf(etc, sizeof etc, "%s/etc", in->data_dir);
    if (make_absolute(in->out, out ? out : etc, err)) {
        return -1;
    }
    snprintf(in->ca, sizeof in->ca, "%s/ca.pem", in->out);
    snprintf(in->ca_key, sizeof in->ca_key, "%s/ca.key", in->out);
    snprintf(in->cert, sizeof in->cert, "%s/server.pem", in->out);
    snprintf(in->key, sizeof in->key, "%s/server.key", in->out);
    snprintf(in->config, sizeof in->config, "%s/tandemd.yaml", in->out);
    if (in->client) {
        size_t len = strlen(in->client);
        bool fits = len > 0 && len <= 40 && in->client[0] != '.';
        for (size_t i = 0; fits && i < len; i++) {
            fits = isalnum((unsigned char)in->client[i]) || strchr("-._", in->client[i]);
        }
        if (!fits) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "--client %.60s: letters, digits, - . _, at most 40", in->client);
        }
        snprintf(in->client_cert, sizeof in->client_cert, "%s/client-%s.pem", in->out, in->client);
        snprintf(in->client_key, sizeof in->client_key, "%s/client-%s.key", in->out, in->client);
    }
    return 0;
}

static int refuse_existing(const char *const *paths, struct error *err)
{
    for (; *paths; paths++) {
        struct stat st;
        if (lstat(*paths, &st) == 0) {
            return error_set(err, ERR_ALREADY_EXISTS,
                             "%s is there already and stays (--renew makes a new server "
                             "certificate under the same CA; another --out starts afresh)",
                             *paths);
        }
    }
    return 0;
}

/* ---- making -------------------------------------------------------------------------------- */

static int make_ca(const struct init *in, struct cert *ca, struct error *err)
{
    int64_t now = clock_wall_us() / 1000000;
    char host[256] = "", name[64];
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "Tandem CA of %.40s", host);
    const struct cert_wish wish = {.kind = CERT_CA,
                                   .name = name,
                                   .from_s = now - BACKDATE_S,
                                   .until_s = now + CA_DAYS * DAY_S};
    return cert_make(ca, &wish, NULL, err) || cert_write(ca, in->ca, in->ca_key, err) ? -1 : 0;
}

static int make_server(const struct init *in, const struct cert *ca, struct error *err)
{
    int64_t now = clock_wall_us() / 1000000;
    char name[65];
    struct cert c;
    snprintf(name, sizeof name, "%s", in->hosts[0]);
    const struct cert_wish wish = {.kind = CERT_SERVER,
                                   .name = name,
                                   .hosts = (const char *const *)in->hosts,
                                   .num_hosts = in->num_hosts,
                                   .from_s = now - BACKDATE_S,
                                   .until_s = now + in->days * DAY_S};
    if (cert_make(&c, &wish, ca, err)) {
        return -1;
    }
    int r = cert_write(&c, in->cert, in->key, err);
    cert_free(&c);
    return r;
}

static int make_client(const struct init *in, const struct cert *ca, struct error *err)
{
    int64_t now = clock_wall_us() / 1000000;
    struct cert c;
    const struct cert_wish wish = {.kind = CERT_CLIENT,
                                   .name = in->client,
                                   .from_s = now - BACKDATE_S,
                                   .until_s = now + in->days * DAY_S};
    const char *const paths[] = {in->client_cert, in->client_key, NULL};
    if (refuse_existing(paths, err) || cert_make(&c, &wish, ca, err)) {
        return -1;
    }
    int r = cert_write(&c, in->client_cert, in->client_key, err);
    cert_free(&c);
    return r;
}

static int write_config(const struct init *in, struct error *err)
{
    struct buf b = {0};
    buf_printf(&b,
               "# tandemd --config %s; what else may stand here: examples/tandemd.yaml\n"
               "data_dir: \"%s\"\n"
               "listen: [\"%s\"]\n"
               "tls:\n"
               "  cert_file: \"%s\"\n"
               "  key_file: \"%s\"\n",
               in->config, in->data_dir, in->listen, in->cert, in->key);
    if (in->client) {
        buf_printf(&b, "  client_ca_file: \"%s\"\n  require_client_cert: %s\n", in->ca,
                   in->require_client_cert ? "true" : "false");
    }
    int r = fs_write_atomic(in->config, b.data, b.len, 0644, err);
    buf_free(&b);
    return r;
}

/* ---- what was done ------------------------------------------------------------------------- */

static void print_hosts(const struct init *in)
{
    printf("The certificate is good for %lld days, for", (long long)in->days);
    for (int i = 0; i < in->num_hosts; i++) {
        printf("%s %s", i ? "," : "", in->hosts[i]);
    }
    puts(".");
}

static void print_client(const struct init *in)
{
    printf("\nOn the machine of %s, beside its token:\n"
           "  export TANDEM_CERT_FILE=client-%s.pem TANDEM_KEY_FILE=client-%s.key   # from %s\n"
           "The server looks at it where tls in its config file has\n"
           "  client_ca_file: \"%s\"\n",
           in->client, in->client, in->client, in->out, in->ca);
}

static void print_next(const struct init *in)
{
    const char *colon = strrchr(in->listen, ':');
    printf("%s\n"
           "  ca.pem        the CA: users need it, it is no secret\n"
           "  ca.key        its key: whoever has it can pose as the server; keep it safe\n"
           "  server.pem    the server's certificate, and server.key\n"
           "  tandemd.yaml  its config file\n",
           in->out);
    print_hosts(in);
    printf("\nStart it, and make the first user and token through the operator's socket:\n"
           "  tandemd --config %s &\n"
           "  export TANDEM_SERVER=unix:%s/tandemd.sock\n"
           "  tandem admin user add NAME --tenant default\n"
           "  tandem admin token create --user NAME --tenant default --out NAME.token\n"
           "\nWhat the user puts into ~/.config/tandem on another machine:\n"
           "  ca.pem        from %s\n"
           "  token         NAME.token (0600)\n"
           "  server        one line: %s%s\n",
           in->config, in->data_dir, in->out, in->hosts[0], colon ? colon : "");
    if (in->client) {
        print_client(in);
    }
}

/* ---- the verb ------------------------------------------------------------------------------ */

static int init_all(struct init *in, const struct arg_texts *hosts, struct error *err)
{
    const char *const paths[] = {in->ca, in->ca_key, in->cert, in->key, in->config, NULL};
    struct cert ca = {0};
    bool only_client = in->client && !in->renew && fs_exists(in->ca_key);
    bool fresh = !only_client && !in->renew;
    if ((fresh && refuse_existing(paths, err)) || (!only_client && choose_hosts(in, hosts, err)) ||
        fs_mkdirs(in->out, 0700, err)) {
        return -1;
    }
    if (fresh ? make_ca(in, &ca, err) : cert_read(&ca, in->ca, in->ca_key, err)) {
        cert_free(&ca);
        return -1;
    }
    int r = (!only_client && make_server(in, &ca, err)) || (fresh && write_config(in, err)) ||
                    (in->client && make_client(in, &ca, err))
                ? -1
                : 0;
    cert_free(&ca);
    if (r == 0 && fresh) {
        print_next(in);
    } else if (r == 0 && in->renew) {
        print_hosts(in);
        printf("%s is new; a tandemd that runs takes it within seconds.\n", in->cert);
    }
    if (r == 0 && in->client && !fresh) {
        print_client(in);
    }
    return r;
}

static int run(struct cli *cli, int argc, char **argv)
{
    (void)cli;
    static struct init in = {.listen = "0.0.0.0:7443", .days = DAYS};
    struct arg_texts hosts = {.num = 0};
    const char *data_dir = NULL, *out = NULL;
    const struct arg_flag flags[] = {
        {.name = "data-dir", .kind = ARG_TEXT, .out = &data_dir},
        {.name = "out", .kind = ARG_TEXT, .out = &out},
        {.name = "host", .kind = ARG_TEXTS, .out = &hosts},
        {.name = "listen", .kind = ARG_TEXT, .out = &in.listen},
        {.name = "client", .kind = ARG_TEXT, .out = &in.client},
        {.name = "require-client-cert", .kind = ARG_BOOL, .out = &in.require_client_cert},
        {.name = "days", .kind = ARG_INT, .out = &in.days},
        {.name = "renew", .kind = ARG_BOOL, .out = &in.renew},
        {0}};
    struct error err;
    if (args_parse(flags, argc, argv, NULL, 0) < 0) {
        return EXIT_USAGE;
    }
    if (in.days < 1 || in.days > DAYS_MAX) {
        return cli_usage("admin init", "--days: 1 to %d", DAYS_MAX);
    }
    if (strpbrk(in.listen, "\"\\\n")) {
        return cli_usage("admin init", "--listen: expected host:port");
    }
    if (in.require_client_cert && !in.client) {
        return cli_usage("admin init", "--require-client-cert needs a --client NAME to let in");
    }
    int r = choose_paths(&in, data_dir, out, &err) || init_all(&in, &hosts, &err);
    for (int i = 0; i < in.num_hosts; i++) {
        free(in.hosts[i]);
    }
    return r ? cli_fail(&err) : EXIT_DONE;
}

const struct verb admin_init = {
    .name = "init",
    .args = "[--data-dir DIR] [--host NAME|ADDRESS]... [--out DIR] [--client NAME] [--renew]",
    .help = "make certificates and a config file for a server that other hosts reach",
    .text =
        "Run it where tandemd is to run; it asks no server. Into --out (default: DATA_DIR/etc) go "
        "a\n"
        "CA of your own (10 years), the server's certificate and tandemd.yaml. What is there is\n"
        "never overwritten.\n\n"
        "  --data-dir DIR         where tandemd keeps its state (default: ~/tandem)\n"
        "  --host NAME|ADDRESS    what users call the server; may be repeated (default: this "
        "host's\n"
        "                         name and addresses). localhost is always in\n"
        "  --listen ADDR          default 0.0.0.0:7443\n"
        "  --days N               how long the certificate is good (default: 730)\n"
        "  --client NAME          also a certificate for a client; with a CA that is there: only "
        "that\n"
        "  --require-client-cert  nobody without one gets in (a token is needed all the same)\n"
        "  --renew                a new server certificate under the CA that is there\n\n"
        "  tandem admin init --data-dir /var/lib/tandem --host train.example.org\n"
        "  tandem admin init --data-dir /var/lib/tandem --renew\n",
    .run = run,
    .text_only = true,
};
