/* A loader's options out of a plan. */
#include "runtime/data/loader.h"

#include <string.h>

#include "plan/mesh.h"

int loader_options_from_plan(struct loader_options *out, const Plan *plan, int32_t rank)
{
    const JobSpec *spec = plan->spec;
    if (!spec || !spec->data || !spec->training || spec->data->n_train != 1 || !plan->mesh ||
        !plan->model || !plan->model->config) {
        return -1;
    }
    const SourceSpec *source = spec->data->train[0];
    const DataFacts *facts = plan->n_train == 1 ? plan->train[0] : NULL;
    *out = (struct loader_options){
        /* The facts have the path as the probe resolved it. */
        .path = facts && facts->path ? facts->path : source->path,
        .format = source->format,
        .window = source->window,
        .tokenizer = spec->data->tokenizer,
        .order = spec->data->order,
        .seed = spec->training->seed,
        .seq_len = spec->training->seq_len,
        .global_batch_size = spec->training->global_batch_size,
        .vocab_size = plan->model->config->vocab_size,
        .data_rank = mesh_coord(plan->mesh, rank).data,
        .data_size = (int32_t)plan->mesh->data,
        .micro_batch_size = spec->training->micro_batch_size,
    };
    bool rows = out->format && strcmp(out->format, "tokenized-jsonl") == 0;
    if (facts && rows) {
        out->expected_rows = facts->num_rows;
        out->expected_bytes = facts->size_bytes;
    } else if (facts) {
        out->expected_tokens = facts->num_tokens;
    }
    return out->path && out->format && out->window && out->tokenizer && out->order ? 0 : -1;
}
