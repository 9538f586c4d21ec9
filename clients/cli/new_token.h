/* A new token on its only way out: to a file of its owner, to a terminal with a word of care, or
 * into a pipe. */
#ifndef TANDEM_CLIENTS_CLI_NEW_TOKEN_H
#define TANDEM_CLIENTS_CLI_NEW_TOKEN_H

#include "clients/cli/cli.h"

/* Before the token is made: can it be written to out (NULL = not asked for)? 0, or an exit code. */
int new_token_check_out(const char *verb, const char *out, bool may_replace);
/* Gives the exit code. A token that couldn't be handed over is said to be useless, with what to do
 * about it. */
int new_token_hand_over(const struct cli *cli, NewToken *token, const char *out);
/* Wipes the secret first. */
void new_token_free(NewToken *token);

#endif
