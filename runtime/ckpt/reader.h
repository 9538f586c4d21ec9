/* An open checkpoint: its manifest, and its files one at a time, checked against their digests: by
 * one reader all that it opens, by several together each its share of all files. */
#ifndef TANDEM_RUNTIME_CKPT_READER_H
#define TANDEM_RUNTIME_CKPT_READER_H

#include "runtime/ckpt/manifest.h"
#include "runtime/ckpt/part.h"
#include "runtime/ckpt/safetensors.h"

struct reader {
    const char *dir; /* borrowed */
    struct manifest m;
    char file_name[PART_FILE_MAX];
    struct st_file *file; /* the one that is open; stays so for its neighbours */
    json_t *checked;      /* names of files whose digest was right */
    int32_t idx, num;     /* which of so many readers this is */
};

/* If it fails there is nothing to close. */
int reader_open(struct reader *r, const char *dir, int32_t idx, int32_t num, struct error *err);
void reader_close(struct reader *r);
/* Opens the file of a tensor, checked; the tensor is valid until the next call. One that isn't
 * there is ERR_DATA_LOSS and named. */
int reader_find(struct reader *r, const char *name, const struct st_tensor **tensor,
                struct error *err);
/* What was read made no sense, as err says: if the file is damaged and nobody has looked yet, err
 * says that instead. Returns -1. */
int reader_doubt(struct reader *r, struct error *err);
/* Of several readers: checks what of this one's share it has not opened. */
int reader_check_share(struct reader *r, struct error *err);
/* Is it in the manifest? Opens nothing. */
int reader_expect(const struct reader *r, const char *name, struct error *err);

#endif
