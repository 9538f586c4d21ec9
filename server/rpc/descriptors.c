/* The embedded FileDescriptorSet as reflection needs it: its files apart, and for every message,
 * enum, service and method the file that defines it. Read with a small reader of the wire format,
 * since protobuf-c has no message for descriptors. The set is our own: a fault in it is ours. */
#include "server/rpc/descriptors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/rpc/wire.h"

extern const unsigned char rpc_descriptors[];
extern const unsigned rpc_descriptors_len;

enum { MAX_FILES = 64, MAX_DEPTH = 8, NAME_MAX_BYTES = 256 };

/* Field numbers of descriptor.proto. */
enum {
    SET_FILE = 1,
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_DEPENDENCY = 3,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6,
    ANY_NAME = 1,
    MESSAGE_NESTED = 3,
    MESSAGE_ENUM = 4,
    SERVICE_METHOD = 2,
};

struct symbol {
    char *name; /* owned */
    int file;
    enum descriptor_kind kind;
};

struct descriptors {
    struct descriptor_file files[MAX_FILES]; /* names owned */
    int num_files;
    struct symbol *symbols; /* owned; sorted by name */
    size_t num_symbols;
    size_t cap_symbols;
};

struct bytes {
    const unsigned char *at;
    size_t len;
};

static uint64_t read_varint(struct bytes *b)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        ASSERT(b->len > 0);
        unsigned char c = *b->at++;
        b->len--;
        value |= (uint64_t)(c & 127) << shift;
        if (c < 128) {
            break;
        }
    }
    return value;
}

/* The next length-delimited field; others are skipped. Its number, 0 at the end. */
static unsigned next_field(struct bytes *b, struct bytes *field)
{
    while (b->len > 0) {
        uint64_t key = read_varint(b);
        unsigned wire_type = key & 7;
        if (wire_type == 0) {
            read_varint(b);
            continue;
        }
        size_t len = wire_type == 2 ? read_varint(b) : wire_type == 1 ? 8 : 4;
        ASSERT(len <= b->len);
        *field = (struct bytes){b->at, len};
        b->at += len;
        b->len -= len;
        if (wire_type == 2) {
            return (unsigned)(key >> 3);
        }
    }
    return 0;
}

/* The string field of that number, or "". */
static void find_string(struct bytes b, unsigned number, char out[NAME_MAX_BYTES])
{
    struct bytes field;
    unsigned n;
    out[0] = 0;
    while ((n = next_field(&b, &field))) {
        if (n == number) {
            ASSERT(field.len < NAME_MAX_BYTES);
            memcpy(out, field.at, field.len);
            out[field.len] = 0;
            return;
        }
    }
}

static void join_name(char out[NAME_MAX_BYTES], const char *scope, const char *name)
{
    int n = snprintf(out, NAME_MAX_BYTES, "%s%s%s", scope, scope[0] ? "." : "", name);
    ASSERT(n > 0 && n < NAME_MAX_BYTES);
}

static void add_symbol(struct descriptors *d, const char *name, enum descriptor_kind kind)
{
    if (d->num_symbols == d->cap_symbols) {
        d->cap_symbols = d->cap_symbols ? 2 * d->cap_symbols : 256;
        d->symbols = realloc(d->symbols, d->cap_symbols * sizeof *d->symbols);
        ASSERT(d->symbols);
    }
    d->symbols[d->num_symbols++] = (struct symbol){strdup(name), d->num_files, kind};
}

static void add_named(struct descriptors *d, const char *scope, struct bytes b,
                      enum descriptor_kind kind, char full[NAME_MAX_BYTES])
{
    char name[NAME_MAX_BYTES];
    find_string(b, ANY_NAME, name);
    join_name(full, scope, name);
    add_symbol(d, full, kind);
}

static void add_message(struct descriptors *d, const char *scope, struct bytes b, int depth)
{
    char full[NAME_MAX_BYTES], inner[NAME_MAX_BYTES];
    ASSERT(depth < MAX_DEPTH);
    add_named(d, scope, b, DESCRIPTOR_MESSAGE, full);
    struct bytes field;
    unsigned n;
    while ((n = next_field(&b, &field))) {
        if (n == MESSAGE_NESTED) {
            add_message(d, full, field, depth + 1);
        } else if (n == MESSAGE_ENUM) {
            add_named(d, full, field, DESCRIPTOR_ENUM, inner);
        }
    }
}

static void add_service(struct descriptors *d, const char *scope, struct bytes b)
{
    char full[NAME_MAX_BYTES], method[NAME_MAX_BYTES];
    add_named(d, scope, b, DESCRIPTOR_SERVICE, full);
    struct bytes field;
    unsigned n;
    while ((n = next_field(&b, &field))) {
        if (n == SERVICE_METHOD) {
            add_named(d, full, field, DESCRIPTOR_METHOD, method);
        }
    }
}

static void add_file(struct descriptors *d, struct bytes b)
{
    ASSERT(d->num_files < MAX_FILES);
    struct descriptor_file *f = &d->files[d->num_files];
    char text[NAME_MAX_BYTES];
    find_string(b, FILE_NAME, text);
    f->name = strdup(text);
    f->data = b.at;
    f->len = b.len;
    find_string(b, FILE_PACKAGE, text);
    struct bytes rest = b, field;
    unsigned n;
    while ((n = next_field(&rest, &field))) {
        if (n == FILE_MESSAGE) {
            add_message(d, text, field, 0);
        } else if (n == FILE_ENUM) {
            char full[NAME_MAX_BYTES];
            add_named(d, text, field, DESCRIPTOR_ENUM, full);
        } else if (n == FILE_SERVICE) {
            add_service(d, text, field);
        }
    }
    d->num_files++;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct symbol *)a)->name, ((const struct symbol *)b)->name);
}

int descriptors_new(struct descriptors **out, struct error *err)
{
    struct descriptors *d = calloc(1, sizeof *d);
    if (!d) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "out of memory");
    }
    struct bytes set = {rpc_descriptors, rpc_descriptors_len}, field;
    unsigned n;
    while ((n = next_field(&set, &field))) {
        if (n == SET_FILE) {
            add_file(d, field);
        }
    }
    qsort(d->symbols, d->num_symbols, sizeof *d->symbols, by_name);
    *out = d;
    return 0;
}

void descriptors_free(struct descriptors *d)
{
    if (!d) {
        return;
    }
    for (int i = 0; i < d->num_files; i++) {
        free(d->files[i].name);
    }
    for (size_t i = 0; i < d->num_symbols; i++) {
        free(d->symbols[i].name);
    }
    free(d->symbols);
    free(d);
}

static const struct symbol *find_symbol(const struct descriptors *d, const char *name)
{
    struct symbol key = {.name = (char *)(uintptr_t)name};
    return bsearch(&key, d->symbols, d->num_symbols, sizeof *d->symbols, by_name);
}

const struct descriptor_file *descriptors_file(const struct descriptors *d, const char *name)
{
    for (int i = 0; i < d->num_files; i++) {
        if (strcmp(d->files[i].name, name) == 0) {
            return &d->files[i];
        }
    }
    return NULL;
}

const struct descriptor_file *descriptors_file_of(const struct descriptors *d, const char *symbol)
{
    const struct symbol *s = find_symbol(d, symbol);
    if (s) {
        return &d->files[s->file];
    }
    /* A field or an enum value: its file is that of what it stands in. */
    const char *dot = strrchr(symbol, '.');
    char owner[NAME_MAX_BYTES];
    if (!dot || (size_t)(dot - symbol) >= sizeof owner) {
        return NULL;
    }
    memcpy(owner, symbol, (size_t)(dot - symbol));
    owner[dot - symbol] = 0;
    s = find_symbol(d, owner);
    return s && s->kind != DESCRIPTOR_SERVICE ? &d->files[s->file] : NULL;
}

bool descriptors_has(const struct descriptors *d, const char *symbol, enum descriptor_kind kind)
{
    const struct symbol *s = find_symbol(d, symbol);
    return s && s->kind == kind;
}

const char *descriptors_service(const struct descriptors *d, size_t i)
{
    for (size_t k = 0; k < d->num_symbols; k++) {
        if (d->symbols[k].kind == DESCRIPTOR_SERVICE && i-- == 0) {
            return d->symbols[k].name;
        }
    }
    return NULL;
}

size_t descriptors_closure(const struct descriptors *d, const struct descriptor_file *file,
                           const struct descriptor_file **out, size_t max)
{
    size_t num = 0;
    ASSERT(max > 0);
    out[num++] = file;
    for (size_t done = 0; done < num; done++) {
        struct bytes b = {out[done]->data, out[done]->len}, field;
        unsigned n;
        while ((n = next_field(&b, &field))) {
            char name[NAME_MAX_BYTES];
            if (n != FILE_DEPENDENCY || field.len >= sizeof name) {
                continue;
            }
            memcpy(name, field.at, field.len);
            name[field.len] = 0;
            const struct descriptor_file *f = descriptors_file(d, name);
            bool known = !f;
            for (size_t i = 0; i < num; i++) {
                known = known || out[i] == f;
            }
            if (!known && num < max) {
                out[num++] = f;
            }
        }
    }
    return num;
}
