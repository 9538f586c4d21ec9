/* tandem explain: the documentation of a job file's fields. Asks no server. The config file's are
 * in explain_server.c. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "clients/cli/args.h"
#include "clients/cli/explain_server.h"
#include "clients/cli/table.h"
#include "clients/cli/verbs.h"
#include "plan/spec_docs.h"
#include "proto/text.h"

#define MAX_FIELDS 256
#define LINE_MAX_COLUMNS 90

/* Text in lines of a readable width, each behind the same blanks. */
static void print_wrapped(const char *text, int blanks)
{
    int column = 0;
    while (*text) {
        size_t len = strcspn(text, " ");
        if (column && column + (int)len + 1 > LINE_MAX_COLUMNS - blanks) {
            putchar('\n');
            column = 0;
        }
        column += column ? printf(" %.*s", (int)len, text)
                         : printf("%*s%.*s", blanks, "", (int)len, text) - blanks;
        text += len + strspn(text + len, " ");
    }
    putchar('\n');
}

static void print_first_line(const struct spec_doc *doc)
{
    printf("%s: %s", doc->path, doc->type);
    if (doc->rule->required) {
        printf(", required");
    } else if (doc->fallback[0]) {
        printf(", default %s", doc->fallback);
    }
    putchar('\n');
}

static void print_rows(const struct cli *cli, const struct spec_doc *all, size_t num)
{
    static const char *const columns[] = {"field", "type", "default", "built", NULL};
    struct table *t = table_new(columns);
    for (size_t i = 0; i < num; i++) {
        table_cell(t, all[i].path, NULL, NULL);
        table_cell(t, all[i].type, NULL, NULL);
        table_cell(t, all[i].rule->required ? "required" : all[i].fallback, all[i].fallback, NULL);
        table_cell(t, all[i].unbuilt ? "not built" : "", all[i].unbuilt ? "false" : "true", NULL);
    }
    table_print(t, cli);
    table_free(t);
}

/* A field, and if it is a section all fields below it. */
static void print_field(const struct cli *cli, const struct spec_doc *all, size_t num, size_t i)
{
    const struct spec_doc *doc = &all[i];
    print_first_line(doc);
    if (doc->text[0]) {
        print_wrapped(doc->text, 2);
    }
    if (doc->values[0]) {
        struct buf line = {0};
        buf_printf(&line, "May be: %s.", doc->values);
        print_wrapped(line.data, 2);
        buf_free(&line);
    }
    if (doc->section) {
        size_t end = i + 1;
        while (end < num && all[end].depth > doc->depth) {
            end++;
        }
        putchar('\n');
        print_rows(cli, all + i + 1, end - i - 1);
    }
}

/* A path as someone may write it: without the indices of lists. */
static void drop_indices(char *path)
{
    char *to = path;
    for (char *from = path; *from;) {
        size_t len = strcspn(from, ".");
        bool idx = len > 0 && strspn(from, "0123456789") == len;
        size_t step = len + (from[len] == '.');
        if (!idx) {
            memmove(to, from, step);
            to += step;
        }
        from += step;
    }
    if (to > path && to[-1] == '.') {
        to--;
    }
    *to = 0;
}

static const char *last_name(const struct spec_doc *doc)
{
    const char *dot = strrchr(doc->path, '.');
    return dot ? dot + 1 : doc->path;
}

/* Answers with the nearest path, or the nearest last name. */
static int unknown_field(const struct spec_doc *all, size_t num, const char *field)
{
    const char *paths[MAX_FIELDS + 1] = {0}, *names[MAX_FIELDS + 1] = {0};
    ASSERT(num <= MAX_FIELDS);
    for (size_t i = 0; i < num; i++) {
        paths[i] = all[i].path;
        names[i] = last_name(&all[i]);
    }
    const char *near = text_nearest(field, paths);
    const char *dot = strrchr(field, '.');
    const char *name = near ? NULL : text_nearest(dot ? dot + 1 : field, names);
    for (size_t i = 0; name && !near && i < num; i++) {
        near = names[i] == name ? paths[i] : NULL;
    }
    if (near) {
        return cli_usage("explain", "a job file has no field \"%s\"; did you mean %s?", field,
                         near);
    }
    return cli_usage("explain", "a job file has no field \"%s\"; `tandem explain` lists them",
                     field);
}

static int explain_field(const struct cli *cli, const struct spec_doc *all, size_t num,
                         const char *field)
{
    char *path = strdup(field);
    ASSERT(path);
    drop_indices(path);
    size_t num_found = 0;
    for (size_t i = 0; i < num && !num_found; i++) {
        if (strcmp(all[i].path, path) == 0) {
            print_field(cli, all, num, i);
            num_found++;
        }
    }
    /* A last name alone means every field that has it. */
    for (size_t i = 0, whole = num_found; i < num && !whole; i++) {
        if (strcmp(last_name(&all[i]), path) == 0) {
            fputs(num_found++ ? "\n" : "", stdout);
            print_field(cli, all, num, i);
        }
    }
    int code = num_found ? EXIT_DONE : unknown_field(all, num, path);
    free(path);
    return code;
}

static void list_json(const struct spec_doc *all, size_t num)
{
    json_t *list = json_array();
    for (size_t i = 0; i < num; i++) {
        json_array_append_new(list,
                              json_pack("{ss ss ss ss ss sb sb}", "field", all[i].path, "type",
                                        all[i].type, "default", all[i].fallback, "values",
                                        all[i].values, "text", all[i].text, "required",
                                        all[i].rule->required, "built", !all[i].unbuilt));
    }
    json_dumpf(list, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(list);
}

static int explain_list(const struct cli *cli, const struct spec_doc *all, size_t num)
{
    switch (cli->format) {
    case FORMAT_TABLE:
        print_rows(cli, all, num);
        printf("\n`tandem explain FIELD` says more about each.\n");
        return EXIT_DONE;
    case FORMAT_CSV:
        print_rows(cli, all, num);
        return EXIT_DONE;
    case FORMAT_JSON:
        list_json(all, num);
        return EXIT_DONE;
    case FORMAT_YAML:
    case FORMAT_PLOT:
        break;
    }
    return cli_usage("explain", "the list is there as -o table, csv and json");
}

static void print_markdown(void)
{
    struct buf out = {0};
    spec_docs_markdown(&out);
    fwrite(out.data, 1, out.len, stdout);
    buf_free(&out);
}

static int run(struct cli *cli, int argc, char **argv)
{
    bool markdown = false;
    const char *field;
    const struct arg_flag flags[] = {{.name = "markdown", .kind = ARG_BOOL, .out = &markdown}, {0}};
    int n = args_parse(flags, argc, argv, &field, 1);
    if (n < 0) {
        return EXIT_USAGE;
    }
    if (markdown && n == 1 && strcmp(field, "server") == 0) {
        explain_server_markdown();
        return EXIT_DONE;
    }
    if (markdown && n == 0) {
        print_markdown();
        return EXIT_DONE;
    }
    if (n == 1 && (strcmp(field, "server") == 0 || strncmp(field, "server.", 7) == 0)) {
        return explain_server(cli, field);
    }
    struct spec_doc *all;
    size_t num = spec_docs_all(&all);
    int code = n == 1 ? explain_field(cli, all, num, field) : explain_list(cli, all, num);
    free(all);
    return code;
}

const struct verb verb_explain = {
    .name = "explain",
    .args = "[FIELD]",
    .help = "document the fields of a job file, and of tandemd's config file",
    .text = "Without FIELD: the list of all. FIELD is a path or a last name; a section is shown\n"
            "with its fields. server and what is below it are tandemd's config file. --markdown\n"
            "prints the whole reference, docs/job-spec.md, and with server docs/config.md.\n\n"
            "  tandem explain training.optimizer.lr\n"
            "  tandem explain parallel\n"
            "  tandem explain server.limits\n",
    .run = run,
};
