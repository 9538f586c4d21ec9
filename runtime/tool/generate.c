#include "runtime/tool/generate.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "proto/text.h"
#include "runtime/tool/generator.h"

/* Models over bytes: token = byte. */
#define BYTE_VOCAB 256
#define MAX_TOKENS 1000000
#define PROMPT_MAX_TOKENS 65536
#define FLAGS_MAX 16

static const char usage_text[] =
    "usage: tandem-tool generate --model DIR --prompt TEXT [--max-tokens N] [--temperature T]\n"
    "                            [--top-k K] [--seed S]\n"
    "  --model DIR        a Hugging Face folder, or a checkpoint of a job\n"
    "  --prompt TEXT      what is to be continued; token numbers where the vocabulary isn't bytes\n"
    "  --max-tokens N     tokens to make (default 200)\n"
    "  --temperature T    below 1 more likely, above 1 wilder; 0 = always the likeliest (default\n"
    "                     0.8)\n"
    "  --top-k K          choose among the K likeliest; 0 = all (default 0)\n"
    "  --seed S           the same seed gives the same text (default 1)\n";

struct options {
    const char *program; /* whose words these are: "tandem", or "tandem-tool" */
    const char *model, *prompt;
    int64_t max_tokens;
    struct sampling sampling;
};

static int say_usage(const struct options *o)
{
    if (strcmp(o->program, "tandem") == 0) {
        fputs("Try: tandem generate --help\n", stderr);
    } else {
        fputs(usage_text, stderr);
    }
    return 2;
}

static int usage_error(const struct options *o, const char *what, const char *why)
{
    fprintf(stderr, "%s generate: %s%s\n", o->program, what, why);
    return say_usage(o);
}

static int unknown_flag(const struct options *o, const struct option *flags, const char *flag)
{
    const char *names[FLAGS_MAX] = {0};
    for (int i = 0; flags[i].name; i++) {
        ASSERT(i + 1 < FLAGS_MAX);
        names[i] = flags[i].name;
    }
    char word[64];
    const char *name = flag + strspn(flag, "-");
    snprintf(word, sizeof(word), "%.*s", (int)strcspn(name, "="), name);
    const char *near = text_nearest(word, names);
    fprintf(stderr, "%s generate: there is no flag %s%s%s%s\n", o->program, flag,
            near ? "; did you mean --" : "", near ? near : "", near ? "?" : "");
    return say_usage(o);
}

static int wrong_number(const struct options *o, const char *flag, const char *text, int64_t max)
{
    if (max > 0)
        fprintf(stderr, "%s generate: --%s %s: expected a whole number from 0 to %lld\n",
                o->program, flag, text, (long long)max);
    else
        fprintf(stderr, "%s generate: --%s %s: expected a number, 0 or above\n", o->program, flag,
                text);
    return say_usage(o);
}

static bool read_count(const char *text, int64_t max, int64_t *out)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    *out = n;
    return end != text && *end == '\0' && errno == 0 && n >= 0 && n <= max;
}

static bool read_temperature(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*out) && *out >= 0.0;
}

/* 0, or the exit code; -1: help was asked for. */
static int parse_options(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {
        {"model", required_argument, NULL, 'm'},
        {"prompt", required_argument, NULL, 'p'},
        {"max-tokens", required_argument, NULL, 'n'},
        {"temperature", required_argument, NULL, 't'},
        {"top-k", required_argument, NULL, 'k'},
        {"seed", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int c, idx = 0;
    int64_t seed = 1;
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":h", longs, &idx)) != -1) {
        bool good = true;
        int64_t max = 0;
        switch (c) {
        case 'm':
            o->model = optarg;
            break;
        case 'p':
            o->prompt = optarg;
            break;
        case 'n':
            max = MAX_TOKENS;
            good = read_count(optarg, max, &o->max_tokens);
            break;
        case 't':
            good = read_temperature(optarg, &o->sampling.temperature);
            break;
        case 'k':
            max = INT32_MAX;
            good = read_count(optarg, max, &o->sampling.top_k);
            break;
        case 's':
            max = INT64_MAX;
            good = read_count(optarg, max, &seed);
            break;
        case 'h':
            return -1;
        case ':':
            return usage_error(o, argv[optind - 1], " needs a value");
        default:
            return unknown_flag(o, longs, argv[optind - 1]);
        }
        if (!good)
            return wrong_number(o, longs[idx].name, optarg, max);
    }
    o->sampling.seed = (uint64_t)seed;
    if (optind < argc)
        return usage_error(o, argv[optind], ": no flag stands before it");
    if (o->model == NULL || o->prompt == NULL || o->prompt[0] == '\0')
        return usage_error(o, "--model and --prompt", " are needed");
    return 0;
}

static bool over_bytes(const struct generator *g)
{
    return generator_config(g)->vocab_size == BYTE_VOCAB;
}

/* Numbers with blanks or commas between them. */
static int parse_ids(const char *text, int32_t *out, int64_t *num, struct error *err)
{
    *num = 0;
    const char *p = text + strspn(text, " ,\t\n");
    while (*p != '\0') {
        char *end;
        long id = strtol(p, &end, 10);
        if (end == p || id < 0 || id > INT32_MAX || *num == PROMPT_MAX_TOKENS)
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "--prompt: this model's vocabulary isn't bytes, so the prompt is a "
                             "list of token numbers, at most %d: \"1 15 27\"",
                             PROMPT_MAX_TOKENS);
        out[(*num)++] = (int32_t)id;
        p = end + strspn(end, " ,\t\n");
    }
    return *num > 0 ? 0 : error_set(err, ERR_INVALID_ARGUMENT, "--prompt: no token in it");
}

static int feed_prompt(struct generator *g, const char *prompt, struct error *err)
{
    int32_t *ids = calloc(PROMPT_MAX_TOKENS, sizeof(*ids));
    if (ids == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the prompt");
    int64_t num = 0;
    int rc = 0;
    if (!over_bytes(g))
        rc = parse_ids(prompt, ids, &num, err);
    else
        for (; prompt[num] != '\0' && num < PROMPT_MAX_TOKENS; num++)
            ids[num] = (unsigned char)prompt[num];
    if (rc == 0)
        rc = generator_feed(g, ids, num, err);
    free(ids);
    return rc;
}

static int write_out(const char *data, size_t len, struct error *err)
{
    if (fs_write_all(STDOUT_FILENO, data, len) != 0)
        return error_errno(err, errno, "write to stdout");
    return 0;
}

static int write_token(const struct generator *g, int32_t id, struct error *err)
{
    char text[16];
    if (over_bytes(g)) {
        text[0] = (char)id;
        /* A terminal must not obey what a model dreams up: escapes, bells, cursor moves. */
        bool control = (id < ' ' && id != '\n' && id != '\t') || id == 127;
        text[0] = control && isatty(STDOUT_FILENO) ? '?' : text[0];
        return write_out(text, 1, err);
    }
    int len = snprintf(text, sizeof(text), " %d", id);
    return write_out(text, (size_t)len, err);
}

static int generate(struct generator *g, const struct options *o, struct error *err)
{
    if (feed_prompt(g, o->prompt, err) != 0 || write_out(o->prompt, strlen(o->prompt), err) != 0)
        return -1;
    for (int64_t i = 0; i < o->max_tokens; i++) {
        int32_t id;
        if (generator_next(g, &o->sampling, &id, err) != 0)
            return -1;
        /* Bytes have no end of text: 2 is as good a byte as any. */
        if (!over_bytes(g) && generator_is_end(g, id))
            break;
        if (write_token(g, id, err) != 0)
            return -1;
    }
    return write_out("\n", 1, err);
}

int generate_main(const char *program, int argc, char **argv)
{
    struct options o = {.program = program, .max_tokens = 200, .sampling = {.temperature = 0.8}};
    int code = parse_options(argc, argv, &o);
    if (code == -1)
        fputs(usage_text, stdout);
    if (code != 0)
        return code == -1 ? 0 : code;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    struct error err = {0};
    struct generator *g;
    int rc = generator_open(&g, o.model, cores > 1 ? (int)cores : 1, &err);
    if (rc == 0) {
        rc = generate(g, &o, &err);
        generator_close(g);
    }
    if (rc != 0)
        fprintf(stderr, "%s generate: %s\n", program, err.text);
    return rc == 0 ? 0 : 1;
}
