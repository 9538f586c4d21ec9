#include "clients/cli/curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"

const char *const curve_all_series[] = {"loss",    "grad_norm",    "lr",  "tokens",
                                        "step_ms", "tokens_per_s", "mfu", NULL};

int curve_choose(struct curve *c, char *text, struct error *err)
{
    c->num_series = 0;
    if (!text) {
        for (size_t i = 0; curve_all_series[i]; i++) {
            c->series[c->num_series++] = curve_all_series[i];
        }
        return 0;
    }
    char *rest = text, *word;
    while ((word = strsep(&rest, ","))) {
        size_t i = 0;
        while (curve_all_series[i] && strcmp(curve_all_series[i], word)) {
            i++;
        }
        if (!curve_all_series[i]) {
            const char *near = text_nearest(word, curve_all_series);
            return error_set(err, ERR_INVALID_ARGUMENT, "there is no series \"%s\"%s%s%s", word,
                             near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
        }
        if (c->num_series == CURVE_SERIES_MAX) {
            return error_set(err, ERR_INVALID_ARGUMENT, "more than %d series", CURVE_SERIES_MAX);
        }
        c->series[c->num_series++] = curve_all_series[i];
    }
    return 0;
}

static size_t add_row(struct curve *c, int64_t step, int32_t attempt)
{
    if (c->num_rows == c->cap_rows) {
        c->cap_rows = c->cap_rows ? 2 * c->cap_rows : 1024;
        c->steps = realloc(c->steps, c->cap_rows * sizeof *c->steps);
        c->attempts = realloc(c->attempts, c->cap_rows * sizeof *c->attempts);
        c->values = realloc(c->values, c->cap_rows * c->num_series * sizeof *c->values);
        ASSERT(c->steps && c->attempts && c->values);
    }
    c->steps[c->num_rows] = step;
    c->attempts[c->num_rows] = attempt;
    return c->num_rows++;
}

void curve_add(struct curve *c, const Metrics *m)
{
    const Column *columns[CURVE_SERIES_MAX] = {0};
    for (size_t s = 0; s < c->num_series; s++) {
        for (size_t k = 0; k < m->n_columns; k++) {
            if (m->columns[k]->name && strcmp(m->columns[k]->name, c->series[s]) == 0) {
                columns[s] = m->columns[k];
            }
        }
    }
    for (size_t i = 0; i < m->n_steps; i++) {
        size_t row = add_row(c, m->steps[i], i < m->n_attempts ? m->attempts[i] : 0);
        for (size_t s = 0; s < c->num_series; s++) {
            bool there = columns[s] && i < columns[s]->n_values;
            c->values[row * c->num_series + s] = there ? columns[s]->values[i] : NAN;
        }
    }
}

void curve_add_step(struct curve *c, const StepMetrics *m)
{
    const double all[] = {
        m->has_loss ? m->loss : NAN,       m->has_grad_norm ? m->grad_norm : NAN,
        m->has_lr ? m->lr : NAN,           m->has_tokens ? (double)m->tokens : NAN,
        m->has_step_ms ? m->step_ms : NAN, m->has_tokens_per_s ? m->tokens_per_s : NAN,
        m->has_mfu ? m->mfu : NAN,
    };
    size_t row = add_row(c, m->step, m->attempt);
    for (size_t s = 0; s < c->num_series; s++) {
        size_t i = 0;
        while (curve_all_series[i] != c->series[s]) {
            i++;
        }
        c->values[row * c->num_series + s] = all[i];
    }
}

void curve_get_step(const struct curve *c, size_t row, StepMetrics *out)
{
    const double *v = c->values + row * c->num_series;
    double *const fields[] = {&out->loss,    &out->grad_norm,    &out->lr, NULL,
                              &out->step_ms, &out->tokens_per_s, &out->mfu};
    protobuf_c_boolean *const has[] = {
        &out->has_loss,    &out->has_grad_norm,    &out->has_lr, &out->has_tokens,
        &out->has_step_ms, &out->has_tokens_per_s, &out->has_mfu};
    ASSERT(c->num_series == sizeof has / sizeof *has);
    out->has_step = out->has_attempt = 1;
    out->step = c->steps[row];
    out->attempt = c->attempts[row];
    for (size_t i = 0; i < c->num_series; i++) {
        *has[i] = !isnan(v[i]);
        if (fields[i]) {
            *fields[i] = v[i];
        } else {
            out->tokens = isnan(v[i]) ? 0 : (int64_t)v[i];
        }
    }
}

void curve_free(struct curve *c)
{
    free(c->steps);
    free(c->attempts);
    free(c->values);
    *c = (struct curve){0};
}

double curve_value(const struct curve *c, size_t row, size_t series)
{
    return c->values[row * c->num_series + series];
}

void curve_csv_head(const struct curve *c, struct buf *out)
{
    buf_puts(out, "step,attempt");
    for (size_t s = 0; s < c->num_series; s++) {
        buf_printf(out, ",%s", c->series[s]);
    }
    buf_putc(out, '\n');
}

static void put_csv(const struct curve *c, size_t row, struct buf *out)
{
    buf_printf(out, "%lld,%d", (long long)c->steps[row], c->attempts[row]);
    for (size_t s = 0; s < c->num_series; s++) {
        double v = curve_value(c, row, s);
        if (isnan(v)) {
            buf_putc(out, ',');
        } else {
            buf_printf(out, ",%.17g", v);
        }
    }
}

void curve_row(const struct curve *c, size_t row, enum cli_format format, struct buf *out)
{
    if (format == FORMAT_CSV) {
        put_csv(c, row, out);
        return;
    }
    /* JSON's keys are quoted; YAML takes the same text, and its null. */
    buf_printf(out, "{\"step\": %lld, \"attempt\": %d", (long long)c->steps[row], c->attempts[row]);
    for (size_t s = 0; s < c->num_series; s++) {
        double v = curve_value(c, row, s);
        if (isfinite(v)) {
            buf_printf(out, ", \"%s\": %.17g", c->series[s], v);
        } else {
            buf_printf(out, ", \"%s\": null", c->series[s]);
        }
    }
    buf_putc(out, '}');
}
