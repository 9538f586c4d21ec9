#include "clients/cli/cli.h"

#include <stdarg.h>
#include <string.h>

#include "clients/cli/terminal.h"
#include "proto/text.h"

/* A server that is gone is found out by the connection, within forty seconds. What is there, but
 * busy, is waited for: to give up and ask again would only make it busier. */
enum { CALL_DEADLINE_MS = 120000 };

int cli_channel(struct cli *cli, struct rpc_channel **out, struct error *err)
{
    if (!cli->channel) {
        if (!cli->target && rpc_find_server(cli->server_flag, &cli->target, &cli->token, err)) {
            return -1;
        }
        struct rpc_channel_options o = {
            .target = cli->target, .token = cli->token, .has_given_up = terminal_interrupted};
        if (rpc_channel_open(&cli->channel, &o, err)) {
            return -1;
        }
    }
    *out = cli->channel;
    return 0;
}

int cli_call_within(struct cli *cli, const char *method, const ProtobufCMessage *request,
                    const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **reply,
                    int64_t deadline_ms, struct error *err)
{
    struct rpc_channel *channel;
    char path[128];
    snprintf(path, sizeof path, "/tandem.v1.%s", method);
    if (cli_channel(cli, &channel, err)) {
        return -1;
    }
    int r = rpc_call(channel, path, request, descriptor, reply, deadline_ms, err);
    bool heard = r == 0 || (err->code != ERR_UNAVAILABLE && err->code != ERR_DEADLINE_EXCEEDED);
    if (heard) {
        cli->answered = true;
        cli->away_since_ms = 0;
    }
    return r;
}

int cli_call(struct cli *cli, const char *method, const ProtobufCMessage *request,
             const ProtobufCMessageDescriptor *descriptor, ProtobufCMessage **reply,
             struct error *err)
{
    return cli_call_within(cli, method, request, descriptor, reply, CALL_DEADLINE_MS, err);
}

int cli_fail(const struct error *err)
{
    fprintf(stderr, "tandem: %s\n", err->text);
    if (err->code == ERR_UNAUTHENTICATED) {
        fprintf(stderr,
                "tandem: the token is read from the file that TANDEM_TOKEN_FILE names, else from "
                "~/.config/tandem/token; an admin makes you another (with tandemd --dev it is "
                "DATA_DIR/dev-token)\n");
    }
    return err->code == ERR_UNAVAILABLE ? EXIT_UNREACHABLE : EXIT_FAILED;
}

int cli_usage(const char *verb, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "tandem%s%s: ", verb ? " " : "", verb ? verb : "");
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    fprintf(stderr, "Try: tandem%s%s --help\n", verb ? " " : "", verb ? verb : "");
    return EXIT_USAGE;
}

void cli_print_message(const struct cli *cli, const ProtobufCMessage *message)
{
    struct buf b = {0};
    if (cli->format == FORMAT_YAML) {
        text_to_yaml(&b, message);
    } else {
        text_to_json(&b, message, 2);
    }
    if (b.len && b.data[b.len - 1] != '\n') {
        buf_putc(&b, '\n');
    }
    fputs(b.data ? b.data : "", stdout);
    buf_free(&b);
}
