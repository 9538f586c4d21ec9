#include "clients/cli/explain_server.h"

#include <string.h>

#include "base/buf.h"
#include "clients/cli/table.h"
#include "proto/docs.h"
#include "proto/field.h"
#include "proto/text.h"

enum { MAX_FIELDS = 64 };

struct doc {
    char path[96]; /* "server.limits.connections" */
    const ProtobufCFieldDescriptor *field;
    const char *text; /* "" = none */
    char type[32];
    char fallback[32];
};

struct docs {
    struct doc all[MAX_FIELDS];
    size_t num;
};

/* ---- from the descriptors ------------------------------------------------------------------ */

static const char *find_text(const ProtobufCMessageDescriptor *m, const ProtobufCFieldDescriptor *f)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", m->short_name, f->name);
    const char *text = docs_find(name);
    if (!text && f->type == PROTOBUF_C_TYPE_MESSAGE) {
        text = docs_find(((const ProtobufCMessageDescriptor *)f->descriptor)->short_name);
    }
    return text ? text : "";
}

static void describe(struct doc *d)
{
    const ProtobufCFieldDescriptor *f = d->field;
    bool list = f->label == PROTOBUF_C_LABEL_REPEATED;
    const char *type = f->type == PROTOBUF_C_TYPE_MESSAGE ? "section"
                       : f->type == PROTOBUF_C_TYPE_BOOL  ? "true or false"
                       : field_type_is_int(f->type)       ? "whole number"
                                                          : "text";
    snprintf(d->type, sizeof d->type, "%s%s%s", list ? "list of " : "", type,
             list && f->type == PROTOBUF_C_TYPE_MESSAGE ? "s" : "");
    if (f->default_value && f->type == PROTOBUF_C_TYPE_BOOL) {
        snprintf(d->fallback, sizeof d->fallback, "%s",
                 field_int(f->type, f->default_value) ? "true" : "false");
    } else if (f->default_value && field_type_is_int(f->type)) {
        snprintf(d->fallback, sizeof d->fallback, "%lld",
                 (long long)field_int(f->type, f->default_value));
    }
}

static void add_message(struct docs *docs, const ProtobufCMessageDescriptor *m, const char *path)
{
    for (unsigned i = 0; i < m->n_fields; i++) {
        ASSERT(docs->num < MAX_FIELDS);
        struct doc *d = &docs->all[docs->num++];
        d->field = &m->fields[i];
        snprintf(d->path, sizeof d->path, "%s.%s", path, d->field->name);
        d->text = find_text(m, d->field);
        describe(d);
        if (d->field->type == PROTOBUF_C_TYPE_MESSAGE) {
            add_message(docs, d->field->descriptor, d->path);
        }
    }
}

static void collect(struct docs *docs)
{
    memset(docs, 0, sizeof *docs);
    add_message(docs, &server_config__descriptor, "server");
}

/* ---- shown --------------------------------------------------------------------------------- */

static bool is_below(const struct doc *d, const char *path)
{
    size_t len = strlen(path);
    return strncmp(d->path, path, len) == 0 && d->path[len] == '.';
}

static void print_rows(const struct cli *cli, const struct docs *docs, const char *path)
{
    static const char *const columns[] = {"field", "type", "default", NULL};
    static const char *const full[] = {"field", "type", "default", "text", NULL};
    bool on_paper = cli->format == FORMAT_TABLE; /* texts are too long for a row of that */
    struct table *t = table_new(on_paper ? columns : full);
    for (size_t i = 0; i < docs->num; i++) {
        const struct doc *d = &docs->all[i];
        if (is_below(d, path)) {
            table_cell(t, d->path, NULL, NULL);
            table_cell(t, d->type, NULL, NULL);
            table_cell(t, d->fallback, NULL, NULL);
            if (!on_paper) {
                table_cell(t, d->text, NULL, NULL);
            }
        }
    }
    table_print(t, cli);
    table_free(t);
}

int explain_server(const struct cli *cli, const char *path)
{
    static struct docs docs;
    const char *paths[MAX_FIELDS + 2] = {"server"};
    const struct doc *found = NULL;
    collect(&docs);
    for (size_t i = 0; i < docs.num; i++) {
        paths[i + 1] = docs.all[i].path;
        found = strcmp(path, docs.all[i].path) == 0 ? &docs.all[i] : found;
    }
    if (!found && strcmp(path, "server") != 0) {
        const char *near = text_nearest(path, paths);
        return cli_usage("explain", "the config file has no field \"%s\"%s%s%s", path,
                         near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    if (found && cli->format == FORMAT_TABLE) {
        printf("%s: %s%s%s\n  %s\n", found->path, found->type,
               found->fallback[0] ? ", default " : "", found->fallback, found->text);
    }
    if (!found || found->field->type == PROTOBUF_C_TYPE_MESSAGE) {
        if (found && cli->format == FORMAT_TABLE) {
            printf("\n");
        }
        print_rows(cli, &docs, path);
    }
    return EXIT_DONE;
}

void explain_server_markdown(void)
{
    static struct docs docs;
    collect(&docs);
    puts(
        "# Config file reference\n\n"
        "<!-- Made by `tandem explain server --markdown`; a test compares. Change the comments in\n"
        "     proto/tandem/v1/admin.proto, then run it again. -->\n\n"
        "`tandemd --config FILE` reads it, by the same rules as a job file "
        "([job-spec.md](job-spec.md)):\nan unknown key, a wrong type, a path that isn't there, and "
        "it says file, line and field and\nstarts nothing. `tandemd --config FILE --check` says "
        "what a start would do. `tandem admin init`\nwrites one; "
        "[examples/tandemd.yaml](../examples/tandemd.yaml) shows every field.\n\n"
        "| field | type | default | what |\n| --- | --- | --- | --- |");
    for (size_t i = 0; i < docs.num; i++) {
        const struct doc *d = &docs.all[i];
        printf("| `%s` | %s | %s | %s |\n", d->path + strlen("server."), d->type, d->fallback,
               d->text);
    }
}
