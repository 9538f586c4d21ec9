/* The safetensors format, to the byte: u64 LE header length, JSON header, data. A reader that
 * trusts nothing (bounds, overlaps, holes, overflow, header of at most 100 MB), and a writer that
 * lays tensors out so that many ranks can write their parts of one file. */
#ifndef TANDEM_RUNTIME_CKPT_SAFETENSORS_H
#define TANDEM_RUNTIME_CKPT_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/roots.h"

#define ST_DIMS_MAX 8
#define ST_HEADER_MAX_BYTES 100000000u

enum st_dtype {
    ST_BOOL, ST_U8, ST_I8, ST_F8_E5M2, ST_F8_E4M3, ST_I16, ST_U16, ST_F16, ST_BF16,
    ST_I32, ST_U32, ST_F32, ST_F64, ST_I64, ST_U64,
};

struct st_tensor {
    char *name; /* owned by the file */
    enum st_dtype dtype;
    int32_t num_dims;
    int64_t shape[ST_DIMS_MAX];
    uint64_t begin, end; /* bytes from the start of the data */
};

size_t st_dtype_size(enum st_dtype t);
const char *st_dtype_name(enum st_dtype t);

/* A header, checked against the file's size. */
struct st_header {
    struct st_tensor *tensors; /* owned; sorted by name */
    int32_t num_tensors;
    uint64_t data_offset; /* 8 + n */
    char **metadata;      /* owned: key, value, key, value, ..., NULL; or NULL */
};
/* From bytes (fuzzed): data, len = the first bytes of the file (at least the header),
 * file_bytes = its size. name is for messages. */
int st_header_parse(const char *name, const void *data, size_t len, uint64_t file_bytes,
                    struct st_header *out, struct error *err);
void st_header_free(struct st_header *h);
/* NULL: not there. */
const struct st_tensor *st_header_find(const struct st_header *h, const char *name);

/* An open file, its header checked. roots: where it may lie; NULL = anywhere. */
struct st_file;
int st_open(struct st_file **out, const struct roots *roots, const char *path, struct error *err);
void st_close(struct st_file *f);
const struct st_header *st_file_header(const struct st_file *f);
const char *st_file_path(const struct st_file *f);
/* The bytes, mapped; unaligned perhaps. For files that nobody can cut under us (a process that
 * touches what is gone dies); others are read by st_read_elements. */
const void *st_file_data(const struct st_file *f, const struct st_tensor *t);

/* A model folder: model.safetensors, or model.safetensors.index.json with its shards.
 * roots: where they may lie; NULL = anywhere. */
struct st_folder;
int st_folder_open(struct st_folder **out, const struct roots *roots, const char *dir,
                   struct error *err);
void st_folder_close(struct st_folder *f);
/* Which file has it; NULL: not there. */
const struct st_tensor *st_folder_find(const struct st_folder *f, const char *name,
                                       const struct st_file **file);
int32_t st_folder_num_files(const struct st_folder *f);
/* Inside the folder: i < st_folder_num_files, sorted. */
const char *st_folder_file_name(const struct st_folder *f, int32_t i);
/* All tensor names of all files: i < st_folder_num_tensors. */
int64_t st_folder_num_tensors(const struct st_folder *f);
const struct st_tensor *st_folder_tensor(const struct st_folder *f, int64_t i);

/* Copies count elements from elem_begin, converted to double or float (dst_size 8 or 4). F16, BF16,
 * F32, F64 sources. A file that was cut since st_open is an error. */
int st_read_elements(const struct st_file *f, const struct st_tensor *t, int64_t elem_begin,
                     int64_t count, void *dst, size_t dst_size, struct error *err);

/* Lays out tensors (name, dtype, shape given; begin and end are filled in, in the order given) and
 * makes the header, padded with spaces so that the data begins at a multiple of 64 bytes. *header
 * (the caller frees) includes the 8-byte length. metadata: key, value, ..., NULL; or NULL. */
int st_layout(struct st_tensor *tensors, int32_t num, const char *const *metadata, char **header,
              size_t *header_len, uint64_t *data_bytes, struct error *err);

#endif
