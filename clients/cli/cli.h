/* What every verb of `tandem` gets: the flags that all share, the terminal, the way to the server.
 *
 * A verb is one file with one `const struct verb`; verbs.c lists them. run() gets argv with the
 * verb's name at 0 and without the shared flags, and returns the exit code. A verb that has others
 * below it (`tandem admin token create`) has them in subverbs and no run; theirs get all the words
 * ("admin token create") at 0. */
#ifndef TANDEM_CLIENTS_CLI_H
#define TANDEM_CLIENTS_CLI_H

#include <stdbool.h>
#include <stdio.h>

#include "base/error.h"
#include "proto/names.h"
#include "proto/rpc_client.h"

enum cli_exit {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_JOB_FAILED = 3, /* the job ended unsuccessfully */
    EXIT_UNREACHABLE = 4,
};

enum cli_format { FORMAT_TABLE, FORMAT_JSON, FORMAT_CSV, FORMAT_YAML, FORMAT_PLOT };

struct cli {
    const char *server_flag; /* --server; NULL = find it */
    enum cli_format format;
    bool out_tty;                /* stdout is a terminal */
    bool colour;                 /* and colours are wanted there */
    bool utf8;                   /* the locale writes UTF-8 */
    char *target;                /* owned; once the server was looked for */
    char *token;                 /* owned */
    struct rpc_channel *channel; /* owned; cli_channel opens it */
    bool answered;               /* the server has said something, be it no */
    int64_t began_ms;            /* the program did */
    int64_t away_since_ms;       /* for who waits for it; 0 = it is there */
};

struct verb {
    const char *name;
    const char *args; /* "FILE [--set a.b=c]..."; NULL = none */
    const char *help; /* one line */
    const char *text; /* what --help says below that: flags, an example */
    int (*run)(struct cli *cli, int argc, char **argv);
    bool text_only;                     /* -o json and the like are refused, not ignored */
    const struct verb *const *subverbs; /* ends with NULL; NULL = none */
};

/* Ends with NULL; in the order in which help lists them. */
extern const struct verb *const cli_verbs[];

/* Finds and opens the server's channel, once. */
int cli_channel(struct cli *cli, struct rpc_channel **out, struct error *err);
/* One unary call: method "Jobs/Submit". *reply: protobuf_c_message_free_unpacked(reply, NULL). */
int cli_call(struct cli *cli, const char *method, const ProtobufCMessage *request,
             const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **reply,
             struct error *err);
/* The same for what may take long. */
int cli_call_within(struct cli *cli, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **reply,
                    int64_t deadline_ms, struct error *err);
/* Prints "tandem: TEXT" and gives the exit code that fits err. */
int cli_fail(const struct error *err);
/* Prints "tandem VERB: TEXT", points to --help, gives EXIT_USAGE. */
int cli_usage(const char *verb, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The message in the format asked for (json, yaml). */
void cli_print_message(const struct cli *cli, const ProtobufCMessage *message);

#endif
