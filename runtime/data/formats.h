/* Token files: raw u16 and u32 little-endian, and text through the byte tokenizer. */
#ifndef TANDEM_RUNTIME_DATA_FORMATS_H
#define TANDEM_RUNTIME_DATA_FORMATS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/roots.h"

enum data_format { DATA_TEXT, DATA_U16, DATA_U32 };

/* Words of a job file. -1 and the words that are known, if it isn't one. */
int formats_parse(const char *word, enum data_format *out, struct error *err);

/* An open token file. Read with pread: reads are small, and a file that shrinks under us is an
 * error then, not a SIGBUS. Any thread may read. roots: where it may lie; NULL = anywhere. */
struct token_file;
int formats_open(struct token_file **out, const struct roots *roots, const char *path,
                 enum data_format format, struct error *err);
void formats_close(struct token_file *f);
int64_t formats_num_tokens(const struct token_file *f);
int64_t formats_size_bytes(const struct token_file *f);
/* Fails if the file is smaller now than when it was opened. */
int formats_check_size(const struct token_file *f, struct error *err);
/* Tokens begin .. begin + n - 1 into out. Fails where an id is >= vocab_size (0 = any below 2^31),
 * naming file, position and id, and where the file has shrunk under us. */
int formats_read(const struct token_file *f, int64_t begin, int64_t n, int64_t vocab_size,
                 int32_t *out, struct error *err);

#endif
