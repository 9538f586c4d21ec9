/* The fields of a job file as documentation: from the descriptors (types, defaults), spec_rules
 * (what they may hold) and the comments of jobs.proto. For `tandem explain` and the reference. */
#ifndef TANDEM_PLAN_SPEC_DOCS_H
#define TANDEM_PLAN_SPEC_DOCS_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "plan/spec_rules.h"

struct spec_doc {
    char path[96]; /* "data.train.format": a list's elements have no index */
    int depth;     /* 0 = at the top of the file */
    bool section;  /* a mapping, or a list of them: its fields follow */
    bool unbuilt;  /* refused when it is set, or when set to other than the default */
    const ProtobufCFieldDescriptor *field;
    const struct spec_rule *rule;
    char type[40];     /* "whole number", "list of text" */
    char fallback[64]; /* the default as YAML; "" = none */
    char values[256];  /* "cosine, linear, constant, wsd"; "" = any */
    const char *text;  /* "" = none */
};

/* Every field in the file's order, a section before its fields. The caller frees. */
size_t spec_docs_all(struct spec_doc **out);

/* The whole reference as Markdown. */
void spec_docs_markdown(struct buf *out);

#endif
