/* tandem: the command line. One thread; gRPC core adds its own. */
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "clients/cli/cli.h"
#include "proto/text.h"

enum { MAX_ARGS = 1024 };

static void print_verbs(FILE *f, const struct verb *const *verbs)
{
    for (const struct verb *const *v = verbs; *v; v++) {
        fprintf(f, "  %-10s %s\n", (*v)->name, (*v)->help);
    }
}

static void print_overview(FILE *f)
{
    fprintf(f, "tandem: submit training jobs and follow them\n\nusage: tandem VERB ... "
               "[--server [tls://]HOST:PORT|unix:/PATH] [-o table|json|csv|yaml]\n\n");
    print_verbs(f, cli_verbs);
    fprintf(f, "\n`tandem VERB --help` teaches each of them. The server is found by --server, by\n"
               "TANDEM_SERVER and TANDEM_TOKEN_FILE, or where `tandemd --dev` noted it.\n");
}

/* words: the verb as it is called, "admin token". */
static void print_help(FILE *f, const char *words, const struct verb *v)
{
    fprintf(f, "usage: tandem %s%s%s\n\n%c%s.\n\n", words, v->args ? " " : "",
            v->args ? v->args : "", v->help[0] - 'a' + 'A', v->help + 1);
    if (v->subverbs) {
        print_verbs(f, v->subverbs);
        fprintf(f, "\n`tandem %s VERB --help` teaches each of them.\n\n", words);
    }
    fputs(v->text, f);
}

static const struct verb *find_verb(const struct verb *const *verbs, const char *name)
{
    for (const struct verb *const *v = verbs; *v; v++) {
        if (strcmp((*v)->name, name) == 0) {
            return *v;
        }
    }
    return NULL;
}

/* words: of the verb above, NULL = none. */
static int unknown_verb(const struct verb *const *verbs, const char *words, const char *name)
{
    const char *names[64] = {0};
    for (size_t i = 0; verbs[i] && i < 63; i++) {
        names[i] = verbs[i]->name;
    }
    const char *near = text_nearest(name, names);
    return cli_usage(words, "there is no verb \"%s%s%s\"%s%s%s", words ? words : "",
                     words ? " " : "", name, near ? "; did you mean \"" : "", near ? near : "",
                     near ? "\"?" : "");
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

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++) {
        if (is_help(argv[i])) {
            return true;
        }
    }
    return false;
}

/* Goes down as far as the words are verbs, then runs the last or, with help, tells of it. */
static int run_verb(struct cli *cli, const struct verb *const *verbs, bool help, int argc,
                    char **argv)
{
    static char words[64];
    const struct verb *v = NULL;
    for (;; argc--, argv++) {
        const struct verb *next = find_verb(verbs, argv[0]);
        if (!next) {
            return unknown_verb(verbs, v ? words : NULL, argv[0]);
        }
        v = next;
        size_t n = strlen(words);
        snprintf(words + n, sizeof words - n, "%s%s", n ? " " : "", v->name);
        if (!v->subverbs || argc == 1 || is_help(argv[1])) {
            break;
        }
        verbs = v->subverbs;
    }
    if (help || wants_help(argc, argv)) {
        print_help(stdout, words, v);
        return EXIT_DONE;
    }
    if (v->subverbs) {
        print_help(stderr, words, v);
        return EXIT_USAGE;
    }
    if (v->text_only && cli->format != FORMAT_TABLE) {
        return cli_usage(words, "it writes text only; leave -o out");
    }
    argv[0] = words;
    return v->run(cli, argc, argv);
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
    bool help = strcmp(name, "help") == 0 || is_help(name);
    if (help && argc == 1) {
        print_overview(stdout);
        return EXIT_DONE;
    }
    if (!help) {
        argv[0] = (char *)(uintptr_t)name;
    }
    return run_verb(cli, cli_verbs, help, argc - help, argv + help);
}

int main(int argc, char **argv)
{
    struct cli cli = {.began_ms = clock_mono_ms()};
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
