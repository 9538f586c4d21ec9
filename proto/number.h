/* Numbers as text, exactly: what a file may write for a whole number or a double, and the shortest
 * text that gives a double back. Decimal only: no hex, octal, underscores, sexagesimals, .inf or
 * .nan; a leading zero ("010") is refused because YAML versions read it differently. */
#ifndef TANDEM_PROTO_NUMBER_H
#define TANDEM_PROTO_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A whole number's sign and size: also 1e6 and 1.50e2, computed without rounding. false: it isn't
 * a whole number, or its size is above UINT64_MAX (then *too_large). */
bool number_whole(const char *text, size_t len, bool *negative, uint64_t *size, bool *too_large);
/* number_whole that fits int64. */
bool number_i64(const char *text, size_t len, int64_t *out);
/* A finite double. false: it isn't a number, or is too large (then *too_large). */
bool number_double(const char *text, size_t len, double *out, bool *too_large);

#define NUMBER_TEXT_MAX 32
/* Fewest digits that read back as the same number. nan and inf are written so. */
void number_format(char out[NUMBER_TEXT_MAX], double value);

#endif
