/* A family's parameter table while it is written, line by line. Private to model/family_*. */
#ifndef TANDEM_MODEL_FAMILY_TABLE_H
#define TANDEM_MODEL_FAMILY_TABLE_H

#include "model/family.h"

#define FAMILY_LAYER "model.layers.{layer}."
#define FAMILY_TABLE_MAX 24

/* How a parameter lies over the tensor axis: by its rows (dimension 0), by its columns, or whole on
 * every rank. SPLIT_STREAM: whole, and it acts on the residual stream row by row. */
enum family_split { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLUMNS, SPLIT_STREAM };

struct family_table {
    struct arena *arena;
    ParamDef **defs;
    size_t num;
    double init_std;
    bool full; /* the arena was too small */
};

int family_table_new(struct family_table *t, const ModelConfig *c, struct arena *arena,
                     struct error *err);
/* A matrix with weight decay; columns 0: the scale of a norm, all ones. NULL: the arena is full. */
ParamDef *family_table_add(struct family_table *t, UnitKind unit, ParamRole role, const char *name,
                           int64_t rows, int64_t columns, enum family_split split);
/* A vector of zeros without weight decay. */
ParamDef *family_table_add_bias(struct family_table *t, UnitKind unit, ParamRole role,
                                const char *name, int64_t rows, enum family_split split);
/* The head uses it too. */
void family_table_tie(ParamDef *def, bool tied);
int family_table_end(const struct family_table *t, ParamDef ***defs, size_t *num,
                     struct error *err);

#endif
