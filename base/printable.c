#include "base/printable.h"

#include <string.h>

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

/* Drops a character that the end of the buffer cut in two. */
static void drop_partial(char *text)
{
    size_t n = strlen(text);
    size_t back = 0;
    while (back < n && back < 4 && ((unsigned char)text[n - 1 - back] & 0xC0) == 0x80) {
        back++;
    }
    if (back == n) {
        return;
    }
    unsigned char lead = (unsigned char)text[n - 1 - back];
    size_t want = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    if (back < want) {
        text[n - 1 - back] = 0;
    }
}

void printable_sentence(char *text, bool cut)
{
    if (cut) {
        drop_partial(text);
    }
    printable_utf8(text);
    printable_line(text, strlen(text));
}
