/* tandem: the command line. One thread; gRPC core adds its own. */
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/cli/cli.h"
#include "proto/text.h"

enum { MAX_ARGS = 1024 };

static void print_overview(FILE *f)
{
    fprintf(f, "tandem: submit training jobs and follow them\n\nusage: tandem VERB ... "
               "[--server HOST:PORT|unix:/PATH] [-o table|json|csv|yaml]\n\n");
    for (const struct verb *const *v = cli_verbs; *v; v++) {
        fprintf(f, "  %-10s %s\n", (*v)->name, (*v)->help);
    }
    fprintf(f, "\n`tandem VERB --help` teaches each of them. The server is found by --server, by\n"
               "TANDEM_SERVER and TANDEM_TOKEN_FILE, or where `tandemd --dev` noted it.\n");
}

static void print_help(const struct verb *v)
{
    printf("usage: tandem %s %s\n\n%c%s.\n\n%s", v->name, v->args, v->help[0] - 'a' + 'A',
           v->help + 1, v->text);
}

static const struct verb *find_verb(const char *name)
{
    for (const struct verb *const *v = cli_verbs; *v; v++) {
        if (strcmp((*v)->name, name) == 0) {
            return *v;
        }
    }
    return NULL;
}

static int unknown_verb(const char *name)
{
    const char *names[64] = {0};
    for (size_t i = 0; cli_verbs[i] && i < 63; i++) {
        names[i] = cli_verbs[i]->name;
    }
    const char *near = text_nearest(name, names);
    if (near) {
        return cli_usage(NULL, "there is no verb \"%s\"; did you mean \"%s\"?", name, near);
    }
    return cli_usage(NULL, "there is no verb \"%s\"", name);
}

static int read_format(const char *word, enum cli_format *out)
{
    static const char *const words[] = {"table", "json", "csv", "yaml", "plot", NULL};
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], word) == 0) {
            *out = (enum cli_format)i;
            return 0;
        }
    }
    return -1;
}

/* Takes --server and -o out of the arguments. 0, or an exit code. */
static int take_shared_flags(struct cli *cli, int *argc, char **argv)
{
    int kept = 0;
    for (int i = 0; i < *argc; i++) {
        char *a = argv[i];
        if (strcmp(a, "--") == 0) {
            while (i < *argc) {
                argv[kept++] = argv[i++];
            }
            break;
        }
        bool server = strncmp(a, "--server", 8) == 0 && (a[8] == 0 || a[8] == '=');
        bool output = strncmp(a, "--output", 8) == 0 && (a[8] == 0 || a[8] == '=');
        bool short_output = strncmp(a, "-o", 2) == 0;
        if (!server && !output && !short_output) {
            argv[kept++] = a;
            continue;
        }
        char *value = short_output ? a + 2 : a[8] ? a + 9 : a + 8;
        if (!value[0]) {
            if (++i == *argc) {
                return cli_usage(NULL, "%s needs a value", a);
            }
            value = argv[i];
        }
        if (server) {
            cli->server_flag = value;
        } else if (read_format(value, &cli->format)) {
            return cli_usage(NULL, "-o %s: expected table, json, csv, yaml or plot", value);
        } else {
            cli->format_given = true;
        }
    }
    argv[kept] = NULL;
    *argc = kept;
    return 0;
}

static void look_at_terminal(struct cli *cli)
{
    setlocale(LC_CTYPE, "");
    const char *no_colour = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    cli->out_tty = isatty(STDOUT_FILENO);
    cli->colour = cli->out_tty && !(no_colour && no_colour[0]) && term && strcmp(term, "dumb");
    cli->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            return true;
        }
    }
    return false;
}

static int run(struct cli *cli, int argc, char **argv)
{
    int code = take_shared_flags(cli, &argc, argv);
    if (code) {
        return code;
    }
    if (argc == 0) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    const char *name = strcmp(argv[0], "--version") == 0 ? "version" : argv[0];
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        const struct verb *v = argc > 1 ? find_verb(argv[1]) : NULL;
        if (argc > 1 && !v) {
            return unknown_verb(argv[1]);
        }
        if (v) {
            print_help(v);
        } else {
            print_overview(stdout);
        }
        return EXIT_DONE;
    }
    const struct verb *v = find_verb(name);
    if (!v) {
        return unknown_verb(name);
    }
    if (wants_help(argc, argv)) {
        print_help(v);
        return EXIT_DONE;
    }
    if (v->text_only && cli->format != FORMAT_TABLE) {
        return cli_usage(v->name, "it writes text only; leave -o out");
    }
    return v->run(cli, argc, argv);
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    signal(SIGPIPE, SIG_IGN);
    look_at_terminal(&cli);
    int code = run(&cli, argc - 1, argv + 1);
    if (fflush(stdout) != 0 && code == EXIT_DONE) {
        code = EXIT_FAILED;
    }
    rpc_channel_close(cli.channel);
    free(cli.target);
    free(cli.token);
    return code;
}
