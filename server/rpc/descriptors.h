/* The descriptor set that is built into the controller: its files, and where each name stands. */
#ifndef TANDEM_SERVER_RPC_DESCRIPTORS_H
#define TANDEM_SERVER_RPC_DESCRIPTORS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum descriptor_kind {
    DESCRIPTOR_MESSAGE,
    DESCRIPTOR_ENUM,
    DESCRIPTOR_SERVICE,
    DESCRIPTOR_METHOD,
};

struct descriptor_file {
    char *name;                /* tandem/v1/jobs.proto */
    const unsigned char *data; /* a serialised FileDescriptorProto; borrowed */
    size_t len;
};

struct descriptors;

int descriptors_new(struct descriptors **out, struct error *err);
void descriptors_free(struct descriptors *d);

/* NULL: there is none. */
const struct descriptor_file *descriptors_file(const struct descriptors *d, const char *name);
/* The file that defines "tandem.v1.Jobs", "tandem.v1.Job.id", ... */
const struct descriptor_file *descriptors_file_of(const struct descriptors *d, const char *symbol);
bool descriptors_has(const struct descriptors *d, const char *symbol, enum descriptor_kind kind);
/* Full name of the i-th service, NULL behind the last. */
const char *descriptors_service(const struct descriptors *d, size_t i);
/* The file itself, then all that it imports, directly or not: how many. */
size_t descriptors_closure(const struct descriptors *d, const struct descriptor_file *file,
                           const struct descriptor_file **out, size_t max);

#endif
