/* Names of checkpoint folders and of the files inside. */
#ifndef TANDEM_RUNTIME_CKPT_FOLDER_H
#define TANDEM_RUNTIME_CKPT_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "runtime/ckpt/shard.h"

#define FOLDER_NAME_MAX 64
#define FOLDER_MANIFEST "manifest.json"
#define FOLDER_COMPLETE "COMPLETE"
#define FOLDER_DAMAGED "DAMAGED"
#define FOLDER_WRITERS_MAX 131072
#define FOLDER_JSON_MAX_BYTES ((size_t)256 << 20)

struct folder_name {
    int64_t step;
    int32_t attempt;
    bool temporary;
};

/* "step-00000100-a1", and with ".tmp" behind while it is written. */
void folder_format(const struct folder_name *name, char out[FOLDER_NAME_MAX]);
/* False for anything that folder_format wouldn't write. */
bool folder_parse(const char *text, struct folder_name *out);
/* parent/NAME into out. */
int folder_path(const char *parent, const struct folder_name *name, char *out, size_t size,
                struct error *err);
/* dir/file into out. */
int folder_file(const char *dir, const char *file, char *out, size_t size, struct error *err);
/* Writes COMPLETE, which seals the manifest by its digest. */
int folder_seal(const char *dir, const struct shard_digest *manifest, struct error *err);
/* Is COMPLETE there, and DAMAGED not? */
bool folder_complete(const char *dir);
bool folder_damaged(const char *dir);

#endif
