#include "server/rpc/status_text.h"

#include <stdbool.h>
#include <string.h>

/* Bytes of the UTF-8 character at p, 0 if there is none. Overlong forms, surrogates and what lies
 * above U+10FFFF are no characters. */
static size_t character_len(const unsigned char *p)
{
    if (p[0] < 0x80) {
        return p[0] ? 1 : 0;
    }
    size_t len = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4) {
        return 0;
    }
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xF0 && p[1] < 0x90);
    bool outside = (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF4 && p[1] > 0x8F);
    return overlong || outside ? 0 : len;
}

void status_text_clean(char *out, size_t size, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t n = 0;
    while (*p) {
        size_t len = character_len(p);
        size_t take = len ? len : 1;
        if (n + take >= size) {
            break;
        }
        if (len) {
            memcpy(out + n, p, len);
        } else {
            out[n] = '?';
        }
        n += take;
        p += take;
    }
    out[n] = 0;
}
