/* A writer's part of a checkpoint, and its notes (part-R.json): what it wrote, with digests. The
 * notes are written last, so a part without them is not there. */
#ifndef TANDEM_RUNTIME_CKPT_PART_H
#define TANDEM_RUNTIME_CKPT_PART_H

#include <jansson.h>

#include "runtime/ckpt/ckpt.h"

#define PART_FILE_MAX 64
#define PART_WEIGHTS "weights"
#define PART_OPTIM "optim"
#define PART_NOTES "part"
/* Behind a parameter's name. */
#define PART_EXP_AVG ".exp_avg"
#define PART_EXP_AVG_SQ ".exp_avg_sq"

/* "weights-3.safetensors", "part-3.json". */
void part_file(const char *kind, int32_t writer, char out[PART_FILE_MAX]);
/* The word of a job file: fp32, fp64, bf16. */
const char *part_precision(enum dtype precision);
/* False: there is no such word. */
bool part_precision_parse(const char *word, enum dtype *out);

/* files: {name: {bytes, sha256, tensors: [...]}}; borrowed. */
int part_write(const char *dir, const struct ckpt_meta *meta, enum dtype precision, int32_t writer,
               int32_t num_writers, json_t *files, struct error *err);
/* The notes of one writer, checked: of this save (step, attempt, number of writers), and every
 * file is there with its size. The caller drops *out. */
int part_read(const char *dir, const struct ckpt_meta *meta, int32_t writer, int32_t num_writers,
              json_t **out, struct error *err);

#endif
