/* The command line of tandemd. */
#ifndef TANDEM_SERVER_OPTIONS_H
#define TANDEM_SERVER_OPTIONS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "proto/names.h"
#include "server/settings.h"

#define OPTIONS_LISTEN_MAX 8

struct options {
    char data_dir[PATH_MAX];
    const char *listen[OPTIONS_LISTEN_MAX + 1]; /* NULL-terminated; borrowed or static */
    int num_listen;
    int32_t devices; /* 0 = the cores */
    const char *cluster_file; /* --cluster */
    ClusterSpec *cluster;     /* owned; checked; of the flag, or the file; NULL = this host */
    bool dev;
    const char *restore; /* --restore FILE: put it in the place of the database; NULL = serve */
    const char *record;  /* --record DIR, or the file; NULL = nothing is recorded */
    SchedulerConfig *scheduler; /* owned; of the file, then --scheduler KEY=VALUE; never NULL */
    bool check;                 /* --check: say it with options_print, start nothing */
    struct settings file;       /* owned; --config, as it was read */
    ServerConfig *config; /* its values; NULL without --config; lives as long as the program */
};

/* 0: go on; 1: --help or --version was answered; -1: err says what is wrong with the line or with
 * the file (file, line, field). What the config file says is in the fields above, too, where no
 * flag has said otherwise. */
int options_parse(struct options *out, int argc, char **argv, struct error *err);
/* What a start would do, on stdout. */
void options_print(const struct options *o);

#endif
