#include "clients/cli/list.h"

#include <string.h>

#include "proto/text.h"

/* Puts each line behind first (the first line) or rest. */
static void indent(struct buf *out, const char *text, const char *first, const char *rest)
{
    const char *lead = first;
    while (*text) {
        size_t len = strcspn(text, "\n");
        buf_puts(out, lead);
        buf_append(out, text, len);
        text += len + (text[len] == '\n');
        if (*text) {
            buf_putc(out, '\n');
        }
        lead = rest;
    }
}

void list_print(const struct cli *cli, const ProtobufCMessage *const *messages, size_t n)
{
    struct buf out = {0};
    bool yaml = cli->format == FORMAT_YAML;
    buf_puts(&out, !yaml ? "[" : n ? "" : "[]\n");
    for (size_t i = 0; i < n; i++) {
        struct buf one = {0};
        if (yaml) {
            text_to_yaml(&one, messages[i]);
            indent(&out, one.data ? one.data : "{}", "- ", "  ");
            buf_putc(&out, '\n');
        } else {
            text_to_json(&one, messages[i], 2);
            buf_puts(&out, i ? ",\n" : "\n");
            indent(&out, one.data ? one.data : "{}", "  ", "  ");
        }
        buf_free(&one);
    }
    buf_puts(&out, yaml ? "" : n ? "\n]\n" : "]\n");
    fputs(out.data, stdout);
    buf_free(&out);
}
