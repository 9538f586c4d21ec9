/* Rotary position embedding: the table of angles.
 *
 * Angles are computed in double and rounded once, to fp32 at the least. The frequencies are
 * Hugging Face's: plain, linear (all divided by a factor), and llama3 (long wavelengths divided,
 * short ones kept, a ramp between them).
 * Source: Su et al. 2021; Llama 3.1's rope_scaling as in transformers' modeling_rope_utils. */
#include "runtime/layers/layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *rope_type(const ModelConfig *config)
{
    const RopeScaling *s = config->rope_scaling;
    return s != NULL && s->rope_type != NULL ? s->rope_type : "default";
}

int rope_check(const ModelConfig *config, struct error *err)
{
    const char *type = rope_type(config);
    if (strcmp(type, "default") == 0 || strcmp(type, "linear") == 0 || strcmp(type, "llama3") == 0)
        return 0;
    return error_set(err, ERR_UNIMPLEMENTED,
                     "rope_scaling.rope_type %s isn't known; known are default, linear, llama3",
                     type);
}

static double llama3_frequency(const RopeScaling *s, double frequency)
{
    double context = (double)s->original_max_position_embeddings;
    double wavelength = 2.0 * M_PI / frequency;
    if (wavelength < context / s->high_freq_factor)
        return frequency;
    if (wavelength > context / s->low_freq_factor)
        return frequency / s->factor;
    double smooth =
        (context / wavelength - s->low_freq_factor) / (s->high_freq_factor - s->low_freq_factor);
    return (1.0 - smooth) * frequency / s->factor + smooth * frequency;
}

double rope_frequency(const ModelConfig *config, int64_t head_dim, int64_t i)
{
    double frequency = 1.0 / pow(config->rope_theta, (double)(2 * i) / (double)head_dim);
    const char *type = rope_type(config);
    if (strcmp(type, "llama3") == 0)
        return llama3_frequency(config->rope_scaling, frequency);
    if (strcmp(type, "linear") == 0)
        return frequency / config->rope_scaling->factor;
    return frequency;
}

/* The table in host memory and in the wide type: [T, E/2] cosines, then as many sines. */
static void fill_table(void *table, const struct model *m, const ModelConfig *config)
{
    int64_t half = m->head_dim / 2, num = m->seq_len * half;
    for (int64_t i = 0; i < half; i++) {
        double frequency = rope_frequency(config, m->head_dim, i);
        for (int64_t t = 0; t < m->seq_len; t++) {
            double angle = (double)t * frequency;
            if (m->wide == DTYPE_F64) {
                ((double *)table)[t * half + i] = cos(angle);
                ((double *)table)[num + t * half + i] = sin(angle);
            } else {
                ((float *)table)[t * half + i] = (float)cos(angle);
                ((float *)table)[num + t * half + i] = (float)sin(angle);
            }
        }
    }
}

int rope_fill(struct model *m, const ModelConfig *config, struct error *err)
{
    size_t bytes = (size_t)(m->seq_len * (m->head_dim / 2)) * dtype_size(m->wide);
    char *table = malloc(2 * bytes);
    if (table == NULL)
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "no memory for the RoPE table");
    fill_table(table, m, config);
    const struct device_ops *dev = m->dev->ops;
    int rc = dev->copy(m->dev, m->stream, m->rope_cos, table, bytes, COPY_TO_DEVICE, err);
    if (rc == 0)
        rc = dev->copy(m->dev, m->stream, m->rope_sin, table + bytes, bytes, COPY_TO_DEVICE, err);
    if (rc == 0)
        rc = dev->stream_sync(m->dev, m->stream, err);
    free(table);
    return rc;
}
