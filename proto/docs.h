/* The comments above the fields of the .proto files, for `tandem explain` (generated table). */
#ifndef TANDEM_PROTO_DOCS_H
#define TANDEM_PROTO_DOCS_H

/* name: "JobSpec" or "JobSpec.name". NULL: none. */
const char *docs_find(const char *name);

#endif
