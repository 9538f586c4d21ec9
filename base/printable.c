#include "base/printable.h"

#include <stdbool.h>

void printable_line(char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        /* U+0080 to U+009F, which some terminals obey as well */
        bool high = c == 0xc2 && i + 1 < len && (unsigned char)text[i + 1] >= 0x80 &&
                    (unsigned char)text[i + 1] < 0xa0;
        if (c == '\n' || c == '\t') {
            text[i] = ' ';
        } else if (c < 0x20 || c == 0x7f || high) {
            text[i] = '?';
        }
        if (high) {
            text[++i] = '?';
        }
    }
}

/* Bytes of the character at p, which a NUL ends; 0: it is none. */
static size_t char_size(const unsigned char *p)
{
    size_t size = p[0] < 0x80                    ? 1
                  : p[0] >= 0xc2 && p[0] <= 0xdf ? 2
                  : p[0] >= 0xe0 && p[0] <= 0xef ? 3
                  : p[0] >= 0xf0 && p[0] <= 0xf4 ? 4
                                                 : 0;
    for (size_t i = 1; i < size; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    /* Longer than need be, surrogates, beyond U+10FFFF. */
    bool wrong = size > 2 && ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
                              (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f));
    return wrong ? 0 : size;
}

void printable_utf8(char *text)
{
    while (*text) {
        size_t size = char_size((const unsigned char *)text);
        if (size == 0) {
            *text = '?';
        }
        text += size ? size : 1;
    }
}
