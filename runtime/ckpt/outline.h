/* What one file of a checkpoint has in it, and where: worked out from the parameter table alone, so
 * that all writers of a file agree on it without a word. */
#ifndef TANDEM_RUNTIME_CKPT_OUTLINE_H
#define TANDEM_RUNTIME_CKPT_OUTLINE_H

#include "runtime/ckpt/part.h"
#include "runtime/ckpt/safetensors.h"
#include "runtime/ckpt/state.h"

#define OUTLINE_NAME_MAX (PARAM_NAME_MAX + 16)

/* A tensor of the file, and the part of the state that it is written from. */
struct outline_line {
    const struct param *param;
    const struct ckpt_part *part; /* of the state that the outline was made for */
    char name[OUTLINE_NAME_MAX];
};

struct outline {
    struct outline_line *lines; /* owned */
    struct st_tensor *tensors;  /* owned; names are the lines' */
    int32_t num;
    char *header; /* owned */
    size_t header_len;
    uint64_t data_bytes;
};

/* kind: PART_WEIGHTS or PART_OPTIM (which moments there are says the state). The parameters are
 * split over the files by bytes. */
int outline_new(struct outline *out, const struct ckpt_state *state, const char *kind, int32_t file,
                int32_t num_files, struct error *err);
void outline_free(struct outline *o);

/* Elements of the file, and how many of them this rank has to save. */
int64_t outline_numel(const struct outline *o);
int64_t outline_owned_numel(const struct outline *o, const struct ckpt_state *state);

#endif
