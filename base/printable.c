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
