/* Text that others may have written, made fit for a line of a log: what could move a cursor,
 * colour, or begin a line of its own. */
#ifndef TANDEM_BASE_PRINTABLE_H
#define TANDEM_BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

/* In place, len bytes of UTF-8: control characters become question marks, a byte each; line breaks
 * and tabs become blanks. */
void printable_line(char *text, size_t len);

/* In place: bytes that are no UTF-8, as where a buffer or a precision cut a character, become
 * question marks. Readers of a message throw all of it away otherwise. */
void printable_utf8(char *text);

/* In place: a sentence of ours with others' names in it: one line of whole characters. cut: text
 * ends where a buffer did, perhaps within a character, which is dropped. */
void printable_sentence(char *text, bool cut);

#endif
