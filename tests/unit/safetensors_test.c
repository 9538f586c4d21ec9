/* runtime/ckpt/safetensors.h: what is read, what is refused, and in which words. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fs.h"
#include "runtime/ckpt/safetensors.h"

/* ---- making files ------------------------------------------------------------------------------
 */

static void put_u64(struct buf *b, uint64_t n)
{
    for (int i = 0; i < 8; i++) {
        buf_putc(b, (char)(n >> (8 * i) & 0xFF));
    }
}

/* A file of this header and so many data bytes (0, 1, 2, ...). */
static struct buf file_of(const char *json, size_t data_bytes)
{
    struct buf b = {0};
    put_u64(&b, strlen(json));
    buf_puts(&b, json);
    for (size_t i = 0; i < data_bytes; i++) {
        buf_putc(&b, (char)i);
    }
    return b;
}

static char *make_dir(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/tandem-st-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static void write_in(const char *dir, const char *name, const void *data, size_t len)
{
    char path[256];
    struct error err = {0};
    assert_true(fs_join(path, sizeof path, dir, name));
    if (fs_write_atomic(path, data, len, 0600, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void write_st(const char *dir, const char *name, const char *json, size_t data_bytes)
{
    struct buf b = file_of(json, data_bytes);
    write_in(dir, name, b.data, b.len);
    buf_free(&b);
}

/* ---- headers -----------------------------------------------------------------------------------
 */

static void refuses_bytes(const struct buf *b, uint64_t file_bytes, const char *words)
{
    struct st_header h;
    struct error err = {0};
    /* An exact copy on the heap: a read past the end is caught by the sanitizer. */
    char *copy = malloc(b->len ? b->len : 1);
    assert_non_null(copy);
    if (b->len) {
        memcpy(copy, b->data, b->len);
    }
    int rc = st_header_parse("a.safetensors", copy, b->len, file_bytes, &h, &err);
    free(copy);
    if (rc == 0) {
        fail_msg("was taken, though: %s", words);
    }
    if (!strstr(err.text, words) || !strstr(err.text, "a.safetensors")) {
        fail_msg("says \"%s\", wanted \"%s\" and the file's name", err.text, words);
    }
}

static void refuses(const char *json, size_t data_bytes, const char *words)
{
    struct buf b = file_of(json, data_bytes);
    refuses_bytes(&b, b.len, words);
    buf_free(&b);
}

static struct st_header takes(const char *json, size_t data_bytes)
{
    struct st_header h;
    struct error err = {0};
    struct buf b = file_of(json, data_bytes);
    if (st_header_parse("a.safetensors", b.data, b.len, b.len, &h, &err) != 0) {
        fail_msg("%s: %s", json, err.text);
    }
    buf_free(&b);
    return h;
}

#define T(name, dtype, shape, b, e)                                                                \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #b "," #e "]}"

/* Order in the header, key order in a tensor, white space, padding and empty tensors are free. */
static void a_header_in_any_lawful_form_is_taken(void **state)
{
    (void)state;
    struct st_header h =
        takes("{" T("b", "F32", "[2,3]", 8, 32) "," T("a", "F64", "[]", 0, 8) "}", 32);
    assert_int_equal(h.num_tensors, 2);
    assert_string_equal(h.tensors[0].name, "a");
    const struct st_tensor *b = st_header_find(&h, "b");
    assert_non_null(b);
    assert_int_equal(b->dtype, ST_F32);
    assert_int_equal(b->num_dims, 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->begin, 8);
    assert_null(st_header_find(&h, "c"));
    assert_null(h.metadata);
    st_header_free(&h);

    h = takes("{ \"x\" : {\"data_offsets\":[0, 2],\n\"shape\":[ 1 ], \"dtype\":\"BF16\"} ,"
              "\"__metadata__\":{\"k\":\"v\\n\\u00e4\"}}    ",
              2);
    assert_string_equal(h.metadata[0], "k");
    assert_string_equal(h.metadata[1], "v\n\xC3\xA4");
    assert_null(h.metadata[2]);
    st_header_free(&h);

    h = takes("{" T("e", "F32", "[0,7]", 4, 4) "," T("x", "F32", "[1]", 0, 4) "}", 4);
    assert_int_equal(h.num_tensors, 2);
    st_header_free(&h);

    h = takes("{}", 0);
    assert_int_equal(h.num_tensors, 0);
    assert_null(st_header_find(&h, "x"));
    st_header_free(&h);
}

/* Names are compared after their escapes are undone: two spellings of one name are one name. */
static void a_name_that_stands_twice_is_refused(void **state)
{
    (void)state;
    refuses("{" T("x", "F32", "[1]", 0, 4) "," T("x", "F32", "[1]", 4, 8) "}", 8, "stands twice");
    refuses("{" T("x", "U8", "[1]", 0, 1) "," T("\\u0078", "U8", "[1]", 1, 2) "}", 2,
            "\"x\" stands twice");
    refuses("{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ stands twice");
    refuses("{\"__metadata__\":{\"a\":\"1\",\"b\":\"\",\"a\":\"2\"}}", 0,
            "__metadata__ stands twice");
    refuses("{\"x\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
            "a key stands twice");
}

/* Every byte of the data belongs to exactly one tensor. */
static void bytes_that_overlap_or_belong_to_nobody_are_refused(void **state)
{
    (void)state;
    refuses("{" T("x", "U8", "[4]", 0, 4) "," T("y", "U8", "[4]", 3, 7) "}", 7, "overlap");
    refuses("{" T("x", "U8", "[4]", 0, 4) "," T("y", "U8", "[4]", 0, 4) "}", 4, "overlap");
    refuses("{" T("x", "U8", "[4]", 0, 4) "," T("y", "U8", "[2]", 5, 7) "}", 7, "a hole");
    refuses("{" T("x", "U8", "[4]", 1, 5) "}", 5, "a hole");
    refuses("{" T("x", "U8", "[4]", 0, 4) "}", 5, "belong to none");
    refuses("{}", 1, "belong to none");
    refuses("{" T("x", "U8", "[4]", 0, 4) "," T("e", "U8", "[0]", 2, 2) "}", 4, "overlap");
}

static void offsets_outside_the_file_are_refused(void **state)
{
    (void)state;
    refuses("{" T("x", "U8", "[4]", 0, 4) "}", 3, "outside the 3 data bytes");
    refuses("{" T("x", "U8", "[4]", 4, 0) "}", 4, "outside");
    refuses("{" T("x", "U8", "[4]", 18446744073709551612, 0) "}", 4, "outside");
    refuses("{" T("x", "U8", "[4]", 0, 18446744073709551616) "}", 4, "number above 2^64");
    refuses("{" T("x", "F32", "[2]", 0, 4) "}", 4, "span 4 bytes, its shape needs 8");
}

/* A product that wraps round to the right size is still wrong, also with a zero behind it. */
static void shapes_that_overflow_are_refused(void **state)
{
    (void)state;
    refuses("{" T("x", "F32", "[4294967296,4294967296]", 0, 0) "}", 0, "overflows");
    refuses("{" T("x", "F32", "[4294967296,4294967296,0]", 0, 0) "}", 0, "overflows");
    refuses("{" T("x", "F32", "[4611686018427387905]", 0, 4) "}", 4, "overflows");
    refuses("{" T("x", "F32", "[9223372036854775808]", 0, 4) "}", 4, "above 2^63");
    refuses("{" T("x", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, "more than 8 dimensions");
}

static void what_is_not_such_a_header_is_refused_with_the_place(void **state)
{
    (void)state;
    refuses("", 0, "must begin with '{'");
    refuses(" {}", 0, "must begin with '{'");
    refuses("[]", 0, "must begin with '{'");
    refuses("{} x", 0, "byte 3: more behind the end");
    refuses("{,}", 0, "expected '\"'");
    refuses("{\"x\":", 0, "expected '{'");
    refuses("{\"x\":1}", 0, "tensor \"x\"");
    refuses("{\"x\":{}}", 0, "expected '\"'");
    refuses("{\"x\":{\"dtype\":\"F32\"}}", 0, "is missing");
    refuses("{\"x\":{\"dtype\":\"F33\"}}", 0, "dtype that is not known");
    refuses("{\"x\":{\"dtype\":4}}", 0, "expected '\"'");
    refuses("{\"x\":{\"device\":\"cpu\"}}", 0, "a key other than");
    refuses("{" T("x", "U8", "[-1]", 0, 1) "}", 1, "expected a whole number");
    refuses("{" T("x", "U8", "[1.0]", 0, 1) "}", 1, "expected a whole number");
    refuses("{" T("x", "U8", "[1e0]", 0, 1) "}", 1, "expected a whole number");
    refuses("{" T("x", "U8", "[01]", 0, 1) "}", 1, "expected a whole number");
    refuses("{" T("x", "U8", "[1,]", 0, 1) "}", 1, "expected a whole number");
    refuses("{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, "expected ']'");
    refuses("{" T("", "U8", "[1]", 0, 1) "}", 1, "1 to 512 bytes");
    refuses("{" T("a\\nb", "U8", "[1]", 0, 1) "}", 1, "control character");
    refuses("{\"x", 0, "unfinished string");
    refuses("{\"x\\", 0, "unfinished string");
    refuses("{\"\\u00", 0, "unfinished \\u escape");
    refuses("{\"\\u00zz\"", 0, "bad \\u escape");
    refuses("{\"\\u0000\"", 0, "NUL");
    refuses("{\"\\x\"", 0, "no such escape");
    refuses("{\"\\ud800\"", 0, "surrogate");
    refuses("{\"\\ud800\\u0041\"", 0, "surrogate");
    refuses("{\"\\udc00\"", 0, "surrogate");
    refuses("{\"\xC0\x80\"", 0, "UTF-8");
    refuses("{\"\xED\xA0\x80\"", 0, "UTF-8");
    refuses("{\"\xF5\x80\x80\x80\"", 0, "UTF-8");
    refuses("{\"\xE2\x82", 0, "UTF-8");
    refuses("{\"\x01\"", 0, "control character");
    refuses("{\"__metadata__\":{\"k\":1}}", 0, "expected '\"'");
    refuses("{\"__metadata__\":\"k\"}", 0, "expected '{'");
    refuses("{\"__metadata__\":{\"k\":{}}}", 0, "expected '\"'");
}

static void a_name_of_more_than_512_bytes_is_refused(void **state)
{
    (void)state;
    struct buf b = {0};
    buf_puts(&b, "{\"");
    for (int i = 0; i < 600; i++) {
        buf_putc(&b, 'n');
    }
    buf_puts(&b, "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}");
    refuses(b.data, 1, "too long");
    buf_free(&b);
}

/* The length word is believed by nobody. */
static void a_header_length_beyond_the_file_or_the_limit_is_refused(void **state)
{
    (void)state;
    struct buf b = {0};
    refuses_bytes(&b, 0, "too few");
    buf_puts(&b, "1234567");
    refuses_bytes(&b, 7, "too few");
    buf_clear(&b);
    put_u64(&b, 3);
    buf_puts(&b, "{}");
    refuses_bytes(&b, b.len, "cut off");
    buf_clear(&b);
    put_u64(&b, 100000001);
    buf_puts(&b, "{}");
    refuses_bytes(&b, (uint64_t)1 << 40, "at most 100000000");
    buf_clear(&b);
    put_u64(&b, UINT64_MAX);
    refuses_bytes(&b, UINT64_MAX, "at most 100000000");
    buf_free(&b);
}

/* ---- files -------------------------------------------------------------------------------------
 */

/* Files of another implementation: every tensor is found, with its shape, and finite. */
static void the_golden_models_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *dir;
        int64_t num;
    } models[] = {
        {"llama-tiny", 21}, {"llama-tied", 29}, {"llama-deep", 75}, {"llama-deep-tied", 56}};
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        char dir[512];
        struct st_folder *f;
        struct error err = {0};
        snprintf(dir, sizeof dir, "%s/tests/golden/%s", TANDEM_SOURCE_DIR, models[m].dir);
        if (st_folder_open(&f, NULL, dir, &err) != 0) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(st_folder_num_tensors(f), models[m].num);
        assert_int_equal(st_folder_num_files(f), 1);
        assert_string_equal(st_folder_file_name(f, 0), "model.safetensors");
        for (int64_t i = 0; i < st_folder_num_tensors(f); i++) {
            const struct st_tensor *t = st_folder_tensor(f, i);
            const struct st_file *file;
            assert_ptr_equal(st_folder_find(f, t->name, &file), t);
            int64_t numel = 1;
            for (int32_t d = 0; d < t->num_dims; d++) {
                numel *= t->shape[d];
            }
            float *v = calloc((size_t)numel, sizeof *v);
            assert_non_null(v);
            assert_int_equal(st_read_elements(file, t, 0, numel, v, sizeof *v, &err), 0);
            assert_memory_equal(v, st_file_data(file, t), (size_t)numel * sizeof *v);
            for (int64_t e = 0; e < numel; e++) {
                assert_true(isfinite(v[e]));
            }
            free(v);
        }
        st_folder_close(f);
    }
}

/* Each stored type gives the value that its bits stand for, to double and to float. */
static void elements_are_converted_exactly(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        unsigned char bytes[8];
        double value;
    } cases[] = {
        {"F16", {0x00, 0x3C}, 1.0},
        {"F16", {0x01, 0x00}, 0x1p-24}, /* least subnormal */
        {"F16", {0xFF, 0x83}, -1023 * 0x1p-24},
        {"F16", {0xFF, 0x7B}, 65504.0},
        {"F16", {0x00, 0xFC}, -INFINITY},
        {"F16", {0x00, 0x80}, -0.0},
        {"BF16", {0x80, 0x3F}, 1.0},
        {"BF16", {0x49, 0xC0}, -3.140625},
        {"F32", {0x00, 0x00, 0x80, 0x3F}, 1.0},
        {"F32", {0xDB, 0x0F, 0x49, 0x40}, (double)3.14159274f},
        {"F64", {0, 0, 0, 0, 0, 0, 0xF0, 0x3F}, 1.0},
        {"F64", {0x18, 0x2D, 0x44, 0x54, 0xFB, 0x21, 0x09, 0x40}, 3.141592653589793},
    };
    char *dir = make_dir();
    struct error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t size = cases[i].dtype[0] == 'B' || cases[i].dtype[1] == '1' ? 2
                      : cases[i].dtype[1] == '3'                           ? 4
                                                                           : 8;
        char json[200], path[128];
        /* Three elements, unaligned; the middle one is asked for. */
        snprintf(json, sizeof json,
                 "{\"u\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"x\":{\"dtype\":"
                 "\"%s\",\"shape\":[3],\"data_offsets\":[1,%zu]}}",
                 cases[i].dtype, 1 + 3 * size);
        struct buf b = file_of(json, 1);
        for (int k = 0; k < 3; k++) {
            buf_append(&b, cases[i].bytes, size);
        }
        write_in(dir, "x.safetensors", b.data, b.len);
        buf_free(&b);
        struct st_file *f;
        snprintf(path, sizeof path, "%s/x.safetensors", dir);
        assert_int_equal(st_open(&f, NULL, path, &err), 0);
        const struct st_tensor *t = st_header_find(st_file_header(f), "x");
        double d;
        float s;
        assert_int_equal(st_read_elements(f, t, 1, 1, &d, sizeof d, &err), 0);
        assert_int_equal(st_read_elements(f, t, 2, 1, &s, sizeof s, &err), 0);
        float want = (float)cases[i].value;
        assert_memory_equal(&d, &cases[i].value, sizeof d);
        assert_memory_equal(&s, &want, sizeof s);
        /* Beyond the tensor, and of a type that holds no such numbers. */
        assert_int_equal(st_read_elements(f, t, 2, 2, &d, sizeof d, &err), -1);
        assert_int_equal(st_read_elements(f, t, -1, 1, &d, sizeof d, &err), -1);
        assert_int_equal(st_read_elements(f, t, 1, INT64_MAX, &d, sizeof d, &err), -1);
        t = st_header_find(st_file_header(f), "u");
        assert_int_equal(st_read_elements(f, t, 0, 1, &d, sizeof d, &err), -1);
        assert_non_null(strstr(err.text, "stored as U8"));
        st_close(f);
    }
    assert_int_equal(fs_remove_tree(dir, &err), 0);
}

/* A file that is cut while we hold it ends in an error with its name, not in a signal. */
static void a_file_that_is_cut_under_us_is_an_error(void **state)
{
    (void)state;
    char *dir = make_dir(), path[128];
    struct error err = {0};
    struct st_file *f;
    double v[4];
    write_st(dir, "x.safetensors", "{" T("x", "F64", "[4]", 0, 32) "}", 32);
    snprintf(path, sizeof path, "%s/x.safetensors", dir);
    assert_int_equal(st_open(&f, NULL, path, &err), 0);
    const struct st_tensor *t = st_header_find(st_file_header(f), "x");
    assert_int_equal(st_read_elements(f, t, 0, 4, v, sizeof v[0], &err), 0);
    assert_int_equal(truncate(path, 70), 0);
    assert_int_equal(st_read_elements(f, t, 0, 4, v, sizeof v[0], &err), -1);
    assert_int_equal(err.code, ERR_DATA_LOSS);
    assert_non_null(strstr(err.text, path));
    st_close(f);
    assert_int_equal(fs_remove_tree(dir, &err), 0);
}

static void what_is_no_regular_file_is_refused_without_hanging(void **state)
{
    (void)state;
    struct st_file *f;
    struct error err = {0};
    assert_int_equal(st_open(&f, NULL, "/dev/zero", &err), -1);
    assert_non_null(strstr(err.text, "not a regular file"));
    assert_int_equal(st_open(&f, NULL, "/nowhere/x.safetensors", &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

/* ---- folders -----------------------------------------------------------------------------------
 */

static void folder_refuses(const char *dir, const char *index, const char *words)
{
    struct st_folder *f;
    struct error err = {0};
    write_in(dir, "model.safetensors.index.json", index, strlen(index));
    if (st_folder_open(&f, NULL, dir, &err) == 0) {
        fail_msg("was taken: %s", index);
    }
    if (!strstr(err.text, words)) {
        fail_msg("%s: says \"%s\", wanted \"%s\"", index, err.text, words);
    }
}

static void a_folder_with_an_index_is_one_table(void **state)
{
    (void)state;
    char *dir = make_dir();
    struct st_folder *f;
    struct error err = {0};
    write_st(dir, "s1.safetensors", "{" T("a", "U8", "[1]", 0, 1) "," T("c", "U8", "[1]", 1, 2) "}",
             2);
    write_st(dir, "s2.safetensors", "{" T("b", "U8", "[3]", 0, 3) "}", 3);
    const char *index = "{\"metadata\":{\"total_size\":5},\"weight_map\":{\"a\":\"s1.safetensors\","
                        "\"b\":\"s2.safetensors\",\"c\":\"s1.safetensors\"}}";
    write_in(dir, "model.safetensors.index.json", index, strlen(index));
    if (st_folder_open(&f, NULL, dir, &err) != 0) {
        fail_msg("%s", err.text);
    }
    const struct st_file *file;
    assert_int_equal(st_folder_num_files(f), 2);
    assert_int_equal(st_folder_num_tensors(f), 3);
    assert_non_null(st_folder_find(f, "b", &file));
    assert_non_null(strstr(st_file_path(file), "s2"));
    assert_null(st_folder_find(f, "d", &file));
    st_folder_close(f);

    folder_refuses(dir, "{\"weight_map\":{\"a\":\"../s1.safetensors\"}}",
                   "not a .safetensors file of");
    folder_refuses(dir, "{\"weight_map\":{\"a\":\"/etc/s1.safetensors\"}}",
                   "not a .safetensors file of");
    folder_refuses(dir, "{\"weight_map\":{\"a\":\"..\"}}", "not a .safetensors file of");
    folder_refuses(dir, "{\"weight_map\":{\"a\":\"\"}}", "not a .safetensors file of");
    folder_refuses(dir, "{\"weight_map\":{\"a\":\"config.json\"}}", "not a .safetensors file of");
    folder_refuses(dir, "{\"weight_map\":{\"a\":\"s3.safetensors\"}}", "s3.safetensors");
    folder_refuses(dir, "{\"weight_map\":{\"a\":7}}", "not a name");
    folder_refuses(dir, "{\"weight_map\":{}}", "missing or empty");
    folder_refuses(dir, "{\"weight_map\":[]}", "missing or empty");
    folder_refuses(dir, "{}", "missing or empty");
    folder_refuses(dir, "{\"weight_map\":{\"a\":\"s1.safetensors\",\"a\":\"s2.safetensors\"}}",
                   "duplicate");
    folder_refuses(dir, "{\"weight_map\":{\"a\":\"s1.safetensors\",\"d\":\"s2.safetensors\"}}",
                   "\"d\" is in s2.safetensors; it isn't");
    folder_refuses(dir, "{\"weight_map\":{\"a\":\"s2.safetensors\",\"b\":\"s1.safetensors\"}}",
                   "it isn't");
    write_st(dir, "s2.safetensors", "{" T("a", "U8", "[3]", 0, 3) "}", 3);
    folder_refuses(dir, index, "is also in");
    assert_int_equal(fs_remove_tree(dir, &err), 0);
}

static void a_folder_without_weights_is_refused_by_name(void **state)
{
    (void)state;
    char *dir = make_dir();
    struct st_folder *f;
    struct error err = {0};
    assert_int_equal(st_folder_open(&f, NULL, dir, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, dir));
    assert_int_equal(fs_remove_tree(dir, &err), 0);
}

/* ---- writing -----------------------------------------------------------------------------------
 */

/* What is laid out reads back as it was given, and the data begins at a multiple of 64. */
static void a_layout_reads_back_as_it_was_given(void **state)
{
    (void)state;
    for (int num = 0; num <= 9; num += 3) {
        char names[9][32];
        struct st_tensor in[9] = {{0}};
        for (int i = 0; i < num; i++) {
            snprintf(names[i], sizeof names[i], "t\"\\%d\xC3\xA4", i);
            in[i] = (struct st_tensor){.name = names[i],
                                       .dtype = i % 2 ? ST_F64 : ST_BF16,
                                       .num_dims = i % 4,
                                       .shape = {i + 1, 3, 5}};
        }
        const char *const metadata[] = {"format", "pt", "note", "a\"\n", NULL};
        struct buf b = {0};
        char *header;
        size_t header_len;
        uint64_t data_bytes;
        struct error err = {0};
        struct st_header out;
        assert_int_equal(
            st_layout(in, num, num == 3 ? NULL : metadata, &header, &header_len, &data_bytes, &err),
            0);
        assert_int_equal(header_len % 64, 0);
        buf_append(&b, header, header_len);
        free(header);
        if (st_header_parse("w", b.data, b.len, b.len + data_bytes, &out, &err) != 0) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(out.num_tensors, num);
        for (int i = 0; i < num; i++) {
            const struct st_tensor *t = st_header_find(&out, names[i]);
            assert_non_null(t);
            assert_int_equal(t->dtype, in[i].dtype);
            assert_int_equal(t->num_dims, in[i].num_dims);
            assert_int_equal(t->begin, in[i].begin);
            assert_int_equal(t->end, in[i].end);
            for (int d = 0; d < t->num_dims; d++) {
                assert_int_equal(t->shape[d], in[i].shape[d]);
            }
        }
        if (num != 3) {
            assert_string_equal(out.metadata[3], "a\"\n");
        }
        st_header_free(&out);
        buf_free(&b);
    }
}

static void a_layout_that_would_overflow_is_refused(void **state)
{
    (void)state;
    struct st_tensor t = {.name = (char[]){"x"},
                          .dtype = ST_F64,
                          .num_dims = 2,
                          .shape = {(int64_t)1 << 40, (int64_t)1 << 40}};
    char *header;
    size_t header_len;
    uint64_t data_bytes;
    struct error err = {0};
    assert_int_equal(st_layout(&t, 1, NULL, &header, &header_len, &data_bytes, &err), -1);
    assert_non_null(strstr(err.text, "overflows"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_in_any_lawful_form_is_taken),
        cmocka_unit_test(a_name_that_stands_twice_is_refused),
        cmocka_unit_test(bytes_that_overlap_or_belong_to_nobody_are_refused),
        cmocka_unit_test(offsets_outside_the_file_are_refused),
        cmocka_unit_test(shapes_that_overflow_are_refused),
        cmocka_unit_test(what_is_not_such_a_header_is_refused_with_the_place),
        cmocka_unit_test(a_name_of_more_than_512_bytes_is_refused),
        cmocka_unit_test(a_header_length_beyond_the_file_or_the_limit_is_refused),
        cmocka_unit_test(the_golden_models_are_read),
        cmocka_unit_test(elements_are_converted_exactly),
        cmocka_unit_test(a_file_that_is_cut_under_us_is_an_error),
        cmocka_unit_test(what_is_no_regular_file_is_refused_without_hanging),
        cmocka_unit_test(a_folder_with_an_index_is_one_table),
        cmocka_unit_test(a_folder_without_weights_is_refused_by_name),
        cmocka_unit_test(a_layout_reads_back_as_it_was_given),
        cmocka_unit_test(a_layout_that_would_overflow_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
