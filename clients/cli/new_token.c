#include "clients/cli/new_token.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "clients/cli/human.h"

int new_token_check_out(const char *verb, const char *out, bool may_replace)
{
    struct stat st;
    char dir[PATH_MAX];
    if (!out) {
        return 0;
    }
    if (lstat(out, &st) == 0) {
        if (!may_replace) {
            return cli_usage(verb, "--out %s: is there already", out);
        }
        if (!S_ISREG(st.st_mode)) {
            return cli_usage(verb, "--out %s: not a regular file", out);
        }
    }
    snprintf(dir, sizeof dir, "%s", out);
    char *slash = strrchr(dir, '/');
    if (!slash) {
        snprintf(dir, sizeof dir, ".");
    } else {
        slash[slash == dir] = 0;
    }
    if (access(dir, W_OK) != 0) {
        return cli_usage(verb, "--out %s: its folder can't be written to", out);
    }
    return 0;
}

static int write_out(const NewToken *n, const char *out, struct error *err)
{
    char line[256];
    int len = snprintf(line, sizeof line, "%s\n", n->secret);
    if (len < 0 || (size_t)len >= sizeof line) {
        return error_set(err, ERR_INTERNAL, "the server's token is too long");
    }
    int rc = fs_write_atomic(out, line, (size_t)len, 0600, err);
    explicit_bzero(line, sizeof line);
    return rc;
}

static void tell(const NewToken *n, FILE *f)
{
    const Token *t = n->token;
    char h[HUMAN_MAX];
    fprintf(f, "token %lld of %s (%s)%s%s, ", (long long)t->id, t->user ? t->user : "?",
            t->tenant ? t->tenant : "?", t->label && t->label[0] ? ", " : "",
            t->label ? t->label : "");
    if (t->expires_us) {
        fprintf(f, "good until %s\n", human_time(h, t->expires_us, clock_wall_us()));
    } else {
        fprintf(f, "good until it is revoked\n");
    }
}

static int fail(const NewToken *n, const struct error *err)
{
    fprintf(stderr,
            "tandem: the token was made but could not be handed over; nobody has it now. End it:\n"
            "  tandem admin token revoke %lld\n",
            (long long)n->token->id);
    return cli_fail(err);
}

int new_token_hand_over(const struct cli *cli, NewToken *n, const char *out)
{
    struct error err;
    if (!n->token || !n->secret) {
        error_set(&err, ERR_INTERNAL, "the server's answer holds no token");
        return cli_fail(&err);
    }
    if (out) {
        if (write_out(n, out, &err)) {
            return fail(n, &err);
        }
        explicit_bzero(n->secret, strlen(n->secret));
        free(n->secret);
        n->secret = NULL;
    }
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        cli_print_message(cli, &n->base);
    } else if (out) {
        tell(n, stdout);
        printf("written to %s, for its owner alone\n", out);
    } else if (cli->out_tty) {
        tell(n, stdout);
        printf("\n  %s\n\nIt is shown this once and lets in whoever has it. Its user puts it into\n"
               "~/.config/tandem/token (chmod 600), or names its file in TANDEM_TOKEN_FILE.\n",
               n->secret);
    } else {
        tell(n, stderr);
        printf("%s\n", n->secret);
    }
    if (fflush(stdout) != 0) {
        error_set(&err, ERR_UNAVAILABLE, "standard output can't be written to");
        return out ? cli_fail(&err) : fail(n, &err);
    }
    return EXIT_DONE;
}

void new_token_free(NewToken *n)
{
    if (n->secret) {
        explicit_bzero(n->secret, strlen(n->secret));
    }
    new_token__free_unpacked(n, NULL);
}
