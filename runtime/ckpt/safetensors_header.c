#include "runtime/ckpt/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/ckpt/safetensors_json.h"

#define TENSORS_MAX 1000000
#define METADATA_MAX 65536
#define NAME_MAX_BYTES 512

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [ST_BOOL] = {"BOOL", 1},       [ST_U8] = {"U8", 1},           [ST_I8] = {"I8", 1},
    [ST_F8_E5M2] = {"F8_E5M2", 1}, [ST_F8_E4M3] = {"F8_E4M3", 1}, [ST_I16] = {"I16", 2},
    [ST_U16] = {"U16", 2},         [ST_F16] = {"F16", 2},         [ST_BF16] = {"BF16", 2},
    [ST_I32] = {"I32", 4},         [ST_U32] = {"U32", 4},         [ST_F32] = {"F32", 4},
    [ST_F64] = {"F64", 8},         [ST_I64] = {"I64", 8},         [ST_U64] = {"U64", 8},
};
#define NUM_DTYPES ((int)(sizeof dtypes / sizeof dtypes[0]))

size_t st_dtype_size(enum st_dtype t)
{
    return dtypes[t].size;
}

const char *st_dtype_name(enum st_dtype t)
{
    return dtypes[t].name;
}

/* While a header is read. */
struct parse {
    struct st_json j;
    struct st_header *out;
    struct buf text; /* the string being read */
    int32_t tensors_cap;
    size_t num_metadata, metadata_cap;
    bool has_metadata;
};

static int out_of_memory(const struct parse *p)
{
    return error_set(p->j.err, ERR_RESOURCE_EXHAUSTED, "%s: header: out of memory", p->j.name);
}

static int take_dtype(struct parse *p, enum st_dtype *out)
{
    if (st_json_string(&p->j, 16, &p->text) != 0) {
        return -1;
    }
    for (int i = 0; i < NUM_DTYPES; i++) {
        if (strcmp(p->text.data, dtypes[i].name) == 0) {
            *out = (enum st_dtype)i;
            return 0;
        }
    }
    return st_json_fail(&p->j, "a dtype that is not known");
}

static int take_shape(struct parse *p, struct st_tensor *t)
{
    if (st_json_expect(&p->j, '[') != 0) {
        return -1;
    }
    if (st_json_take(&p->j, ']')) {
        return 0;
    }
    do {
        uint64_t dim;
        if (t->num_dims == ST_DIMS_MAX) {
            return st_json_fail(&p->j, "more than 8 dimensions");
        }
        if (st_json_u64(&p->j, &dim) != 0) {
            return -1;
        }
        if (dim > INT64_MAX) {
            return st_json_fail(&p->j, "dimension above 2^63 - 1");
        }
        t->shape[t->num_dims++] = (int64_t)dim;
    } while (st_json_take(&p->j, ','));
    return st_json_expect(&p->j, ']');
}

static int take_offsets(struct parse *p, struct st_tensor *t)
{
    if (st_json_expect(&p->j, '[') != 0 || st_json_u64(&p->j, &t->begin) != 0 ||
        st_json_expect(&p->j, ',') != 0 || st_json_u64(&p->j, &t->end) != 0 ||
        st_json_expect(&p->j, ']') != 0) {
        return -1;
    }
    return 0;
}

/* The object behind a tensor's name: each of the three keys once, nothing else. */
static int take_tensor_body(struct parse *p, struct st_tensor *t)
{
    enum { HAS_DTYPE = 1, HAS_SHAPE = 2, HAS_OFFSETS = 4 };
    unsigned seen = 0;
    if (st_json_expect(&p->j, '{') != 0) {
        return -1;
    }
    do {
        if (st_json_string(&p->j, 16, &p->text) != 0) {
            return -1;
        }
        const char *key = p->text.data;
        unsigned bit = strcmp(key, "dtype") == 0          ? HAS_DTYPE
                       : strcmp(key, "shape") == 0        ? HAS_SHAPE
                       : strcmp(key, "data_offsets") == 0 ? HAS_OFFSETS
                                                          : 0;
        if (bit == 0) {
            return st_json_fail(&p->j, "a key other than dtype, shape and data_offsets");
        }
        if (seen & bit) {
            return st_json_fail(&p->j, "a key stands twice");
        }
        seen |= bit;
        if (st_json_expect(&p->j, ':') != 0) {
            return -1;
        }
        int rc = bit == HAS_DTYPE   ? take_dtype(p, &t->dtype)
                 : bit == HAS_SHAPE ? take_shape(p, t)
                                    : take_offsets(p, t);
        if (rc != 0) {
            return rc;
        }
    } while (st_json_take(&p->j, ','));
    if (st_json_expect(&p->j, '}') != 0) {
        return -1;
    }
    if (seen != (HAS_DTYPE | HAS_SHAPE | HAS_OFFSETS)) {
        return st_json_fail(&p->j, "dtype, shape or data_offsets is missing");
    }
    return 0;
}

/* Does the byte range hold exactly the shape, inside the file? */
static int check_tensor(const struct parse *p, const struct st_tensor *t, uint64_t data_bytes)
{
    uint64_t bytes = st_dtype_size(t->dtype);
    for (int32_t i = 0; i < t->num_dims; i++) {
        /* A zero later on does not excuse a product that overflows before it. */
        if (__builtin_mul_overflow(bytes, (uint64_t)t->shape[i], &bytes)) {
            return error_set(p->j.err, ERR_INVALID_ARGUMENT, "%s: tensor \"%s\": shape overflows",
                             p->j.name, t->name);
        }
    }
    if (t->begin > t->end || t->end > data_bytes) {
        return error_set(p->j.err, ERR_INVALID_ARGUMENT,
                         "%s: tensor \"%s\": data_offsets [%llu, %llu] outside the %llu data bytes "
                         "of the file: it is cut off or damaged",
                         p->j.name, t->name, (unsigned long long)t->begin,
                         (unsigned long long)t->end, (unsigned long long)data_bytes);
    }
    if (t->end - t->begin != bytes) {
        return error_set(p->j.err, ERR_INVALID_ARGUMENT,
                         "%s: tensor \"%s\": data_offsets span %llu bytes, its shape needs %llu",
                         p->j.name, t->name, (unsigned long long)(t->end - t->begin),
                         (unsigned long long)bytes);
    }
    return 0;
}

static int take_tensor(struct parse *p, uint64_t data_bytes)
{
    struct st_header *h = p->out;
    for (size_t i = 0; i < p->text.len; i++) {
        if ((unsigned char)p->text.data[i] < 0x20) {
            return st_json_fail(&p->j, "control character in a tensor's name");
        }
    }
    if (p->text.len == 0 || p->text.len > NAME_MAX_BYTES) {
        return st_json_fail(&p->j, "a tensor's name must have 1 to 512 bytes");
    }
    if (h->num_tensors == TENSORS_MAX) {
        return st_json_fail(&p->j, "more than a million tensors");
    }
    if (h->num_tensors == p->tensors_cap) {
        int32_t cap = p->tensors_cap ? p->tensors_cap * 2 : 16;
        struct st_tensor *grown = realloc(h->tensors, (size_t)cap * sizeof *grown);
        if (!grown) {
            return out_of_memory(p);
        }
        h->tensors = grown;
        p->tensors_cap = cap;
    }
    struct st_tensor *t = &h->tensors[h->num_tensors];
    *t = (struct st_tensor){.name = strdup(p->text.data)};
    if (!t->name) {
        return out_of_memory(p);
    }
    h->num_tensors++;
    if (take_tensor_body(p, t) != 0) {
        return error_wrap(p->j.err, "tensor \"%s\"", t->name);
    }
    return check_tensor(p, t, data_bytes);
}

static int keep_metadata_text(struct parse *p)
{
    struct st_header *h = p->out;
    if (p->num_metadata + 2 > p->metadata_cap) {
        size_t cap = p->metadata_cap ? p->metadata_cap * 2 : 8;
        char **grown = realloc(h->metadata, cap * sizeof *grown);
        if (!grown) {
            return out_of_memory(p);
        }
        h->metadata = grown;
        p->metadata_cap = cap;
    }
    h->metadata[p->num_metadata] = strdup(p->text.data);
    if (!h->metadata[p->num_metadata]) {
        return out_of_memory(p);
    }
    h->metadata[++p->num_metadata] = NULL;
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int check_metadata_keys(const struct parse *p)
{
    size_t num = p->num_metadata / 2;
    char **keys = calloc(num + 1, sizeof *keys);
    if (!keys) {
        return out_of_memory(p);
    }
    for (size_t i = 0; i < num; i++) {
        keys[i] = p->out->metadata[2 * i];
    }
    qsort(keys, num, sizeof *keys, by_text);
    int rc = 0;
    for (size_t i = 1; i < num && rc == 0; i++) {
        if (strcmp(keys[i - 1], keys[i]) == 0) {
            rc = st_json_fail(&p->j, "a key of __metadata__ stands twice");
        }
    }
    free(keys);
    return rc;
}

static int take_metadata(struct parse *p)
{
    if (p->has_metadata) {
        return st_json_fail(&p->j, "__metadata__ stands twice");
    }
    p->has_metadata = true;
    if (st_json_expect(&p->j, '{') != 0) {
        return -1;
    }
    if (st_json_take(&p->j, '}')) {
        return 0;
    }
    do {
        if (p->num_metadata >= 2 * METADATA_MAX) {
            return st_json_fail(&p->j, "more than 65536 entries of __metadata__");
        }
        if (st_json_string(&p->j, NAME_MAX_BYTES, &p->text) != 0 || keep_metadata_text(p) != 0 ||
            st_json_expect(&p->j, ':') != 0 ||
            st_json_string(&p->j, ST_HEADER_MAX_BYTES, &p->text) != 0 ||
            keep_metadata_text(p) != 0) {
            return -1;
        }
    } while (st_json_take(&p->j, ','));
    return st_json_expect(&p->j, '}') != 0 ? -1 : check_metadata_keys(p);
}

static int take_object(struct parse *p, uint64_t data_bytes)
{
    /* The format allows padding behind the object only. */
    if (p->j.p == p->j.end || *p->j.p != '{') {
        return st_json_fail(&p->j, "must begin with '{'");
    }
    p->j.p++;
    if (st_json_take(&p->j, '}')) {
        return st_json_finish(&p->j);
    }
    do {
        /* One more than allowed is read, so that take_tensor can say what is wrong. */
        if (st_json_string(&p->j, NAME_MAX_BYTES + 1, &p->text) != 0 ||
            st_json_expect(&p->j, ':') != 0) {
            return -1;
        }
        int rc = strcmp(p->text.data, "__metadata__") == 0 ? take_metadata(p)
                                                           : take_tensor(p, data_bytes);
        if (rc != 0) {
            return rc;
        }
    } while (st_json_take(&p->j, ','));
    if (st_json_expect(&p->j, '}') != 0) {
        return -1;
    }
    return st_json_finish(&p->j);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

static int by_place(const void *a, const void *b)
{
    const struct st_tensor *x = *(const struct st_tensor *const *)a;
    const struct st_tensor *y = *(const struct st_tensor *const *)b;
    if (x->begin != y->begin) {
        return x->begin < y->begin ? -1 : 1;
    }
    return x->end < y->end ? -1 : x->end > y->end;
}

static int check_places(const char *name, const struct st_tensor **order, int32_t num,
                        uint64_t data_bytes, struct error *err)
{
    uint64_t at = 0;
    for (int32_t i = 0; i < num; i++) {
        const struct st_tensor *t = order[i];
        if (t->begin != at) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "%s: tensor \"%s\" begins at data byte %llu, the one before it ends "
                             "at %llu: %s",
                             name, t->name, (unsigned long long)t->begin, (unsigned long long)at,
                             t->begin < at ? "they overlap" : "a hole");
        }
        at = t->end;
    }
    if (at != data_bytes) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: %llu data bytes behind the last tensor belong to none", name,
                         (unsigned long long)(data_bytes - at));
    }
    return 0;
}

/* Sorts by name; refuses names that stand twice, overlaps and holes. */
static int settle(const char *name, struct st_header *h, uint64_t data_bytes, struct error *err)
{
    if (h->num_tensors) {
        qsort(h->tensors, (size_t)h->num_tensors, sizeof *h->tensors, by_name);
    }
    for (int32_t i = 1; i < h->num_tensors; i++) {
        if (strcmp(h->tensors[i - 1].name, h->tensors[i].name) == 0) {
            return error_set(err, ERR_INVALID_ARGUMENT, "%s: tensor \"%s\" stands twice", name,
                             h->tensors[i].name);
        }
    }
    const struct st_tensor **order = calloc((size_t)h->num_tensors + 1, sizeof *order);
    if (!order) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: header: out of memory", name);
    }
    for (int32_t i = 0; i < h->num_tensors; i++) {
        order[i] = &h->tensors[i];
    }
    qsort(order, (size_t)h->num_tensors, sizeof *order, by_place);
    int rc = check_places(name, order, h->num_tensors, data_bytes, err);
    free(order);
    return rc;
}

int st_header_parse(const char *name, const void *data, size_t len, uint64_t file_bytes,
                    struct st_header *out, struct error *err)
{
    uint64_t n = 0;
    if (file_bytes < 8 || len < 8) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: %llu bytes are too few for a safetensors file", name,
                         (unsigned long long)file_bytes);
    }
    for (int i = 7; i >= 0; i--) {
        n = n << 8 | ((const unsigned char *)data)[i];
    }
    if (n > ST_HEADER_MAX_BYTES) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: a header of %llu bytes; at most %u are allowed", name,
                         (unsigned long long)n, ST_HEADER_MAX_BYTES);
    }
    if (n > file_bytes - 8 || n > len - 8) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: cut off: the header has %llu bytes, %llu are there", name,
                         (unsigned long long)n, (unsigned long long)(file_bytes - 8));
    }
    struct st_header h = {.data_offset = 8 + n};
    const char *text = (const char *)data + 8;
    struct parse p = {.j = {name, text, text, text + n, err}, .out = &h};
    uint64_t data_bytes = file_bytes - h.data_offset;
    int rc = take_object(&p, data_bytes);
    if (rc == 0) {
        rc = settle(name, &h, data_bytes, err);
    }
    buf_free(&p.text);
    if (rc != 0) {
        st_header_free(&h);
        return rc;
    }
    *out = h;
    return 0;
}

void st_header_free(struct st_header *h)
{
    for (int32_t i = 0; i < h->num_tensors; i++) {
        free(h->tensors[i].name);
    }
    free(h->tensors);
    for (char **m = h->metadata; m && *m; m++) {
        free(*m);
    }
    free(h->metadata);
    *h = (struct st_header){0};
}

const struct st_tensor *st_header_find(const struct st_header *h, const char *name)
{
    struct st_tensor key = {.name = (char *)(uintptr_t)name};
    return h->num_tensors == 0
               ? NULL
               : bsearch(&key, h->tensors, (size_t)h->num_tensors, sizeof key, by_name);
}
