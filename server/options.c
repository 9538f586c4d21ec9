#include "server/options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "proto/names.h"
#include "proto/text.h"

static const char help[] =
    "tandemd - the controller of Tandem: takes training jobs, queues them, runs them, keeps their\n"
    "curves, logs and checkpoints.\n"
    "\n"
    "Usage: tandemd --dev --data-dir DIR [--listen ADDR]... [--devices N]\n"
    "       tandemd --config FILE\n"
    "\n"
    "  --dev            one implicit admin; no tenants, no TLS, this host only\n"
    "  --data-dir DIR   database, job folders, sockets, tokens; made if it isn't there (0700); on "
    "a\n"
    "                   local disk; one server at a time\n"
    "  --listen ADDR    host:port on loopback (port 0 = any free one) or unix:/path; may be "
    "repeated.\n"
    "                   DIR/tandemd.sock is always served\n"
    "  --devices N      CPU devices to offer, more than there are cores if you like (default: "
    "cores)\n"
    "  --config FILE    data_dir, listen, limits from a YAML file; callers need tokens, but for "
    "who\n"
    "                   may open DIR/tandemd.sock\n"
    "  --version, --help\n"
    "\n"
    "A first run:\n"
    "  tandemd --dev --data-dir ~/tandem &\n"
    "  tandem submit job.yaml --follow      # finds the server through ~/.config/tandem\n"
    "\n"
    "Over TCP callers need the token in DIR/dev-token; the socket needs none, its folder is yours\n"
    "alone. TERM or Ctrl-C stops the server within seconds; running jobs train on without it, and\n"
    "the next tandemd on the same DIR takes them over.\n";

static int read_config(struct options *o, const char *path, struct error *err)
{
    char *text;
    size_t len;
    ProtobufCMessage *message;
    if (fs_read_file(path, TEXT_MAX_BYTES, &text, &len, err) != 0) {
        return -1;
    }
    int rc = text_parse(path, text, len, &server_config__descriptor, &message, err);
    free(text);
    if (rc != 0) {
        return -1;
    }
    ServerConfig *c = (ServerConfig *)message;
    o->config = c;
    if (c->data_dir) {
        snprintf(o->data_dir, sizeof o->data_dir, "%s", c->data_dir);
    }
    if (c->has_devices) {
        o->devices = c->devices;
    }
    for (size_t i = 0; i < c->n_listen; i++) {
        if (o->num_listen == OPTIONS_LISTEN_MAX - 1) {
            return error_set(err, ERR_INVALID_ARGUMENT, "%s: listen: too many addresses", path);
        }
        o->listen[o->num_listen++] = c->listen[i];
    }
    return 0;
}

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
        return read_config(o, value, err);
    case 'C':
        return error_set(err, ERR_UNIMPLEMENTED,
                         "--cluster is not built yet: this server offers the CPU devices of its "
                         "own host (--devices N)");
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

int options_parse(struct options *o, int argc, char **argv, struct error *err)
{
    static const struct option names[] = {
        {"dev", no_argument, NULL, 'D'},
        {"data-dir", required_argument, NULL, 'd'},
        {"listen", required_argument, NULL, 'l'},
        {"devices", required_argument, NULL, 'n'},
        {"config", required_argument, NULL, 'c'},
        {"cluster", required_argument, NULL, 'C'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    memset(o, 0, sizeof *o);
    int letter;
    while ((letter = getopt_long(argc, argv, "h", names, NULL)) != -1) {
        int rc = take(o, letter, optarg, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (optind < argc) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: not understood; see tandemd --help",
                         argv[optind]);
    }
    if (!o->dev && !o->config) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "say --dev, for one user on one host, or --config FILE; see tandemd "
                         "--help");
    }
    if (!*o->data_dir) {
        return error_set(err, ERR_INVALID_ARGUMENT, "--data-dir DIR is needed; see tandemd --help");
    }
    return 0;
}
