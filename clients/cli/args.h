/* Flags of one verb: --name VALUE, --name=VALUE, -n VALUE. Unknown ones are answered with the
 * nearest name. */
#ifndef TANDEM_CLIENTS_CLI_ARGS_H
#define TANDEM_CLIENTS_CLI_ARGS_H

#include <stdbool.h>
#include <stdint.h>

enum arg_kind {
    ARG_BOOL,  /* bool */
    ARG_TEXT,  /* const char * */
    ARG_INT,   /* int64_t, not negative */
    ARG_TEXTS, /* struct arg_texts */
};

enum { ARG_TEXTS_MAX = 64 };
struct arg_texts {
    const char *items[ARG_TEXTS_MAX];
    int num;
};

struct arg_flag {
    const char *name; /* without dashes; NULL ends the list */
    char letter;      /* 0 = none */
    enum arg_kind kind;
    void *out;
    bool *given; /* may be NULL */
};

/* Fills the flags; the others go to words (at most max_words). How many words there are, or -1
 * after a sentence on stderr: then the exit code is EXIT_USAGE. argv[0] is the verb. */
int args_parse(const struct arg_flag *flags, int argc, char **argv, const char **words,
               int max_words);

/* A whole number of at least 0; false: it is none. */
bool args_read_int(const char *text, int64_t *out);

#endif
