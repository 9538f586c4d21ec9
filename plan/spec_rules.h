/* What each field of a job file may hold, as a table: spec_check obeys it, `tandem explain` and the
 * reference print it. Rules between fields stand in spec_check.c. */
#ifndef TANDEM_PLAN_SPEC_RULES_H
#define TANDEM_PLAN_SPEC_RULES_H

#include <stdbool.h>
#include <stddef.h>

enum spec_kind {
    SPEC_FREE,     /* any value of its type, or a message with rules of its own */
    SPEC_RANGE,    /* a number from min to max */
    SPEC_POSITIVE, /* a number above 0, to max */
    SPEC_WORD,     /* one of words */
    SPEC_NAME,     /* letters, digits, dot, dash, underscore */
    SPEC_TAG,      /* short free text */
    SPEC_PATH,     /* an absolute path */
    SPEC_PRIORITY, /* one of words, or a whole number from min to max */
    SPEC_INTERVAL, /* a whole number from min to max as text, or a word */
    SPEC_UNBUILT,  /* refused when it is there at all */
};

struct spec_rule {
    const char *field; /* "TrainingSpec.seq_len" */
    enum spec_kind kind;
    double min, max;
    const char *words;   /* built, separated by spaces */
    const char *later;   /* known and not built, separated by spaces */
    const char *unbuilt; /* what a value other than the default would ask for; NULL: it is built */
    const char *unplanned; /* words of later that can't be planned either; "*": the field can't */
    const char *fill;      /* YAML of the default where a descriptor can't hold one (lists) */
    size_t max_count;      /* of a list */
    bool required;
    bool open; /* words: any other name may stand there, too */
};

/* field: "TrainingSpec.seq_len". NULL: no such field of a job file. */
const struct spec_rule *spec_rules_find(const char *field);
/* The i-th rule; NULL behind the last. */
const struct spec_rule *spec_rules_at(size_t i);

/* Splits words into out, which gets at most max - 1 of them and a NULL; store holds the copies. */
#define SPEC_WORDS_MAX 16
struct spec_words {
    char store[256];
    const char *word[SPEC_WORDS_MAX + 1]; /* ends with NULL */
    size_t num;
};
/* The words of a, then those of b; both may be NULL. */
void spec_words_split(struct spec_words *out, const char *a, const char *b);

#endif
