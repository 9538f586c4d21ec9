#include "plan/stages.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "model/family.h"
#include "plan/layout_rules.h"

int32_t stage_num_chunks(const Stage *stage)
{
    return stage->n_chunks > 0 ? (int32_t)stage->n_chunks : 1;
}

struct stage_chunk stage_chunk_at(const Stage *stage, int32_t i, int64_t num_layers)
{
    if (stage->n_chunks > 0) {
        const LayerRange *r = stage->chunks[i];
        return (struct stage_chunk){r->begin, r->end, r->embed, r->head};
    }
    return (struct stage_chunk){stage->layer_begin, stage->layer_end, stage->layer_begin == 0,
                                stage->layer_end == num_layers};
}

int64_t stage_num_layers(const Stage *stage)
{
    int64_t num = 0;
    for (int32_t i = 0; i < stage_num_chunks(stage); i++) {
        struct stage_chunk c = stage_chunk_at(stage, i, 0);
        num += c.end - c.begin;
    }
    return num;
}

bool stage_has_embed(const Stage *stage, int64_t num_layers)
{
    for (int32_t i = 0; i < stage_num_chunks(stage); i++) {
        if (stage_chunk_at(stage, i, num_layers).embed) {
            return true;
        }
    }
    return false;
}

bool stage_has_head(const Stage *stage, int64_t num_layers)
{
    for (int32_t i = 0; i < stage_num_chunks(stage); i++) {
        if (stage_chunk_at(stage, i, num_layers).head) {
            return true;
        }
    }
    return false;
}

/* ---- dealing out blocks --------------------------------------------------------------------- */

/* The pipeline as a line of chunks, each with its blocks and its work so far (a block is 1). */
struct line {
    int64_t num; /* chunks: pipeline x virtual_stages */
    int64_t *layers;
    double *load;
    bool ends_may_be_empty;
};

static int64_t least_layers(const struct line *line, int64_t i)
{
    return line->ends_may_be_empty && (i == 0 || i + 1 == line->num) ? 0 : 1;
}

static void give(struct line *line, int64_t i, int64_t layers)
{
    line->layers[i] += layers;
    line->load[i] += (double)layers;
}

/* Of equals the last goes first: it holds activations for the shortest time. */
static bool goes_first(const struct line *line, int64_t a, int64_t b)
{
    double x = line->load[a], y = line->load[b];
    return x < y || (!(y < x) && a > b);
}

/* A heap of places, the one that goes first on top; the one at i may be too far up. */
static void sink(const struct line *line, int64_t *heap, int64_t num, int64_t i)
{
    for (int64_t child = 2 * i + 1; child < num; child = 2 * i + 1) {
        if (child + 1 < num && goes_first(line, heap[child + 1], heap[child])) {
            child++;
        }
        if (!goes_first(line, heap[child], heap[i])) {
            return;
        }
        int64_t swapped = heap[i];
        heap[i] = heap[child];
        heap[child] = swapped;
        i = child;
    }
}

/* Deals layers out among the chunks places[num], which is put into another order: one after the
 * other to the one with the least work. */
static void deal(struct line *line, int64_t *places, int64_t num, int64_t layers)
{
    for (int64_t i = 0; i < num; i++) {
        int64_t least = least_layers(line, places[i]);
        give(line, places[i], least);
        layers -= least;
    }
    ASSERT(layers >= 0);
    for (int64_t i = num / 2; i-- > 0;) {
        sink(line, places, num, i);
    }
    while (layers-- > 0) {
        give(line, places[0], 1);
        sink(line, places, num, 0);
    }
}

/* Work of embedding and head, in blocks. The embedding computes nothing, but what it keeps in
 * memory and reduces is as much as the head's. */
static double ends_work(const JobSpec *spec, const ModelConfig *c)
{
    double mean = ((double)spec->training->seq_len + 1) / 2;
    double all = family_flops_per_token(c, mean);
    double head = 6.0 * (double)c->vocab_size * (double)c->hidden_size;
    return head / ((all - head) / (double)c->num_hidden_layers);
}

/* The place in the line of a rank's chunk. */
static int64_t place_of(const ParallelSpec *l, int64_t stage, int64_t chunk)
{
    if (chunk > 0 && layout_schedule_is(l, "zb-v")) {
        return 2 * l->pipeline - 1 - stage;
    }
    if (chunk > 0 && layout_schedule_is(l, "dualpipe")) {
        return l->pipeline - 1 - stage;
    }
    return chunk * l->pipeline + stage;
}

static void fill_line(struct line *line, const JobSpec *spec, const ModelConfig *config)
{
    const ParallelSpec *l = spec->parallel->layout;
    double ends = ends_work(spec, config);
    int64_t *places = calloc((size_t)line->num, sizeof *places);
    ASSERT(places);
    line->load[0] += ends;
    line->load[line->num - 1] += ends;
    if (l->n_layers_per_stage == 0) {
        for (int64_t i = 0; i < line->num; i++) {
            places[i] = i;
        }
        deal(line, places, line->num, config->num_hidden_layers);
    }
    int64_t chunks = line->num / l->pipeline;
    for (size_t s = 0; s < l->n_layers_per_stage; s++) {
        for (int64_t i = 0; i < chunks; i++) {
            places[i] = place_of(l, (int64_t)s, i);
        }
        deal(line, places, chunks, l->layers_per_stage[s]);
    }
    free(places);
}

/* ---- stages --------------------------------------------------------------------------------- */

/* The range at a place of the line, which has num of them. */
static void add_chunk(Stage *stage, const int64_t *begins, int64_t place, int64_t num)
{
    LayerRange *r = malloc(sizeof *r);
    ASSERT(r);
    layer_range__init(r);
    r->has_begin = r->has_end = 1;
    r->begin = begins[place];
    r->end = begins[place + 1];
    r->has_embed = r->embed = place == 0;
    r->has_head = r->head = place + 1 == num;
    stage->chunks[stage->n_chunks++] = r;
}

/* num: chunks of the whole line. */
static Stage *stage_new(const ParallelSpec *l, int64_t idx, const int64_t *begins, int64_t num)
{
    Stage *stage = malloc(sizeof *stage);
    ASSERT(stage);
    stage__init(stage);
    int64_t chunks = layout_chunks(l), first = place_of(l, idx, 0);
    int64_t last = place_of(l, idx, chunks - 1);
    stage->has_layer_begin = stage->has_layer_end = 1;
    stage->layer_begin = begins[first];
    stage->layer_end = begins[last + 1];
    if (chunks == 1) {
        return stage;
    }
    stage->chunks = calloc((size_t)chunks, sizeof(LayerRange *));
    ASSERT(stage->chunks);
    bool backward = last < first; /* the second half of dualpipe's ranks */
    for (int64_t c = 0; c < chunks; c++) {
        add_chunk(stage, begins, place_of(l, idx, backward ? chunks - 1 - c : c), num);
    }
    stage->layer_begin = stage->chunks[0]->begin;
    stage->layer_end = stage->chunks[chunks - 1]->end;
    return stage;
}

void stages_build(Plan *plan)
{
    const ParallelSpec *l = plan->spec->parallel->layout;
    int64_t chunks = layout_schedule_is(l, "dualpipe") ? 1 : layout_chunks(l);
    struct line line = {.num = l->pipeline * chunks, .ends_may_be_empty = chunks > 1};
    line.layers = calloc((size_t)line.num, sizeof *line.layers);
    line.load = calloc((size_t)line.num, sizeof *line.load);
    int64_t *begins = calloc((size_t)line.num + 1, sizeof *begins);
    plan->stages = calloc((size_t)l->pipeline, sizeof(Stage *));
    ASSERT(line.layers && line.load && begins && plan->stages);
    fill_line(&line, plan->spec, plan->model->config);
    for (int64_t i = 0; i < line.num; i++) {
        begins[i + 1] = begins[i] + line.layers[i];
    }
    for (int64_t i = 0; i < l->pipeline; i++) {
        plan->stages[plan->n_stages++] = stage_new(l, i, begins, line.num);
    }
    free(line.layers);
    free(line.load);
    free(begins);
}
