/* The sentence of a gRPC status: what core will carry. */
#ifndef TANDEM_SERVER_RPC_STATUS_TEXT_H
#define TANDEM_SERVER_RPC_STATUS_TEXT_H

#include <stddef.h>

/* Trailers hold about 8 KB in all, and a percent-encoded byte takes three. */
#define STATUS_TEXT_MAX 1024

/* A copy of text that is valid UTF-8 (a bad byte becomes '?') and fits size, cut at a whole
 * character. */
void status_text_clean(char *out, size_t size, const char *text);

#endif
