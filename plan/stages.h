/* Pipeline stages: which blocks each holds. All blocks of a model are alike; embedding and head
 * count as work, so that the stages that hold them get fewer blocks. */
#ifndef TANDEM_PLAN_STAGES_H
#define TANDEM_PLAN_STAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/names.h"

/* Fills plan->stages with layers and chunks alone, from a checked layout and model: as
 * parallel.layers_per_stage says, else so that the slowest stage is as quick as can be. */
void stages_build(Plan *plan);

struct stage_chunk {
    int64_t begin, end; /* blocks */
    bool embed, head;
};
int32_t stage_num_chunks(const Stage *stage);
/* num_layers: of the model. */
struct stage_chunk stage_chunk_at(const Stage *stage, int32_t i, int64_t num_layers);
/* Over its chunks. */
int64_t stage_num_layers(const Stage *stage);
bool stage_has_embed(const Stage *stage, int64_t num_layers);
bool stage_has_head(const Stage *stage, int64_t num_layers);

#endif
