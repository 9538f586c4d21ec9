/* Positions of the rows: told with the batch, or counted from 0 in each sequence. */
#include "runtime/layers/layers.h"

#include <stdlib.h>

int positions_fill(struct model *m, struct error *err)
{
    if (m->positions == NULL)
        return 0;
    size_t bytes = (size_t)(m->batch * m->seq_len) * sizeof(*m->positions);
    int32_t *positions = malloc(bytes);
    if (positions == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for positions");
    for (int64_t r = 0; r < m->batch * m->seq_len; r++)
        positions[r] = (int32_t)(r % m->seq_len);
    int rc =
        m->dev->ops->copy(m->dev, m->stream, m->positions, positions, bytes, COPY_TO_DEVICE, err);
    if (rc == 0)
        rc = m->dev->ops->stream_sync(m->dev, m->stream, err);
    free(positions);
    return rc;
}

const int32_t *positions_of_rows(const struct model *m)
{
    if (m->input.positions != NULL)
        return m->input.positions;
    return m->positions != NULL ? m->positions + m->past : NULL;
}
