#include "clients/cli/args.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clients/cli/cli.h"
#include "proto/text.h"

bool args_read_int(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < 0 || text[0] == '+' || text[0] == ' ') {
        return false;
    }
    *out = v;
    return true;
}

static const struct arg_flag *find_flag(const struct arg_flag *flags, const char *arg,
                                        const char **value)
{
    *value = NULL;
    for (const struct arg_flag *f = flags; f->name; f++) {
        size_t len = strlen(f->name);
        if (arg[1] == '-' && strncmp(arg + 2, f->name, len) == 0 &&
            (arg[2 + len] == 0 || arg[2 + len] == '=')) {
            *value = arg[2 + len] ? arg + 3 + len : NULL;
            return f;
        }
        if (arg[1] != '-' && f->letter && arg[1] == f->letter &&
            (arg[2] == 0 || f->kind != ARG_BOOL)) {
            *value = arg[2] ? arg + 2 : NULL;
            return f;
        }
    }
    return NULL;
}

static void unknown_flag(const struct arg_flag *flags, const char *verb, const char *arg)
{
    const char *names[64] = {0};
    char word[64];
    for (int i = 0; flags[i].name && i < 63; i++) {
        names[i] = flags[i].name;
    }
    snprintf(word, sizeof word, "%.*s", (int)strcspn(arg + strspn(arg, "-"), "="),
             arg + strspn(arg, "-"));
    const char *near = text_nearest(word, names);
    if (near) {
        cli_usage(verb, "there is no flag %s; did you mean --%s?", arg, near);
    } else {
        cli_usage(verb, "there is no flag %s", arg);
    }
}

static int store(const struct arg_flag *f, const char *verb, const char *value)
{
    struct arg_texts *texts = f->out;
    switch (f->kind) {
    case ARG_BOOL:
        *(bool *)f->out = true;
        break;
    case ARG_TEXT:
        *(const char **)f->out = value;
        break;
    case ARG_INT:
        if (!args_read_int(value, f->out)) {
            cli_usage(verb, "--%s %s: expected a number", f->name, value);
            return -1;
        }
        break;
    case ARG_TEXTS:
        if (texts->num == ARG_TEXTS_MAX) {
            cli_usage(verb, "--%s may be given %d times at most", f->name, ARG_TEXTS_MAX);
            return -1;
        }
        texts->items[texts->num++] = value;
        break;
    }
    if (f->given) {
        *f->given = true;
    }
    return 0;
}

int args_parse(const struct arg_flag *flags, int argc, char **argv, const char **words,
               int max_words)
{
    int num_words = 0;
    bool only_words = false;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *value;
        if (only_words || arg[0] != '-' || arg[1] == 0) {
            if (num_words == max_words) {
                cli_usage(argv[0], "\"%s\" is one word too many", arg);
                return -1;
            }
            words[num_words++] = arg;
            continue;
        }
        if (strcmp(arg, "--") == 0) {
            only_words = true;
            continue;
        }
        const struct arg_flag *f = find_flag(flags, arg, &value);
        if (!f) {
            unknown_flag(flags, argv[0], arg);
            return -1;
        }
        if (f->kind == ARG_BOOL && value) {
            cli_usage(argv[0], "--%s takes no value", f->name);
            return -1;
        }
        if (f->kind != ARG_BOOL && !value) {
            if (++i == argc) {
                cli_usage(argv[0], "%s needs a value", arg);
                return -1;
            }
            value = argv[i];
        }
        if (store(f, argv[0], value)) {
            return -1;
        }
    }
    return num_words;
}
