#include "reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct st_tensor *tensor(const struct reference *r, const char *name)
{
    const struct st_tensor *t = st_header_find(st_file_header(r->file), name);
    if (t == NULL)
        fail_msg("reference.safetensors has no %s", name);
    return t;
}

bool reference_has(const struct reference *r, const char *name)
{
    return st_header_find(st_file_header(r->file), name) != NULL;
}

static int32_t *read_ints(const struct reference *r, const char *name, int64_t n)
{
    const struct st_tensor *t = tensor(r, name);
    const char *data = st_file_data(r->file, t);
    int32_t *out = malloc((size_t)n * sizeof(*out));
    assert_non_null(out);
    assert_int_equal(t->end - t->begin, (size_t)n * sizeof(int64_t));
    for (int64_t i = 0; i < n; i++) {
        int64_t x;
        memcpy(&x, data + (size_t)i * sizeof(x), sizeof(x));
        out[i] = (int32_t)x;
    }
    return out;
}

struct reference reference_open(const struct golden *golden)
{
    struct reference r = {0};
    struct error err = {0};
    if (st_open(&r.file, NULL, golden_path(golden, "reference.safetensors"), &err) != 0)
        fail_msg("%s", err.text);
    int64_t n = REFERENCE_ROWS * golden->seq_len;
    r.ids = read_ints(&r, "tokens", n);
    r.targets = read_ints(&r, "labels", n);
    if (reference_has(&r, "position_ids")) {
        r.positions = read_ints(&r, "position_ids", n);
        r.segments = read_ints(&r, "segment_ids", n);
    }
    for (int64_t i = 0; i < n; i++)
        r.num_targets += r.targets[i] != REFERENCE_IGNORED;
    return r;
}

void reference_close(struct reference *r)
{
    st_close(r->file);
    free(r->ids);
    free(r->targets);
    free(r->positions);
    free(r->segments);
}

double *reference_read(const struct reference *r, const char *name, int64_t n)
{
    struct error err = {0};
    double *out = malloc((size_t)n * sizeof(*out));
    assert_non_null(out);
    if (st_read_elements(r->file, tensor(r, name), 0, n, out, sizeof(*out), &err) != 0)
        fail_msg("%s", err.text);
    return out;
}

double reference_off(const double *got, const double *want, int64_t n)
{
    double off = 0.0, all = 0.0;
    for (int64_t i = 0; i < n; i++) {
        off += (got[i] - want[i]) * (got[i] - want[i]);
        all += want[i] * want[i];
    }
    return sqrt(all > 0.0 ? off / all : off);
}
