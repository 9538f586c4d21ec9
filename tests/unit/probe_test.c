/* tandem-probe as the controller uses it: the real program, a request on stdin, a reply on stdout;
 * against folders and files that are wrong in each way that they can be. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fs.h"
#include "proto/names.h"
#include "proto/text.h"
#include "tests/deadline.h"

#define TINY TANDEM_SOURCE_DIR "/tests/golden/llama-tiny"
#define TIED TANDEM_SOURCE_DIR "/tests/golden/llama-deep-tied"

static char tmp[64];
static char path_of[1024];

static const char *in_tmp(const char *name)
{
    snprintf(path_of, sizeof path_of, "%s/%s", tmp, name);
    return path_of;
}

static int setup(void **state)
{
    (void)state;
    snprintf(tmp, sizeof tmp, "/tmp/probe_test.XXXXXX");
    assert_non_null(mkdtemp(tmp));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(fs_remove_tree(tmp, NULL), 0);
    return 0;
}

/* ---- the program ---- */

static void read_to_end(pid_t pid, int fd, struct buf *out)
{
    int64_t end_ms = clock_mono_ms() + DEADLINE_S * 1000;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left_ms = end_ms - clock_mono_ms();
        if (left_ms <= 0 || poll(&p, 1, (int)left_ms) <= 0) {
            kill(pid, SIGKILL);
            fail_msg("tandem-probe did not answer within %d s", DEADLINE_S);
        }
        ssize_t n = read(fd, buf_reserve(out, 65536), 65536);
        assert_true(n >= 0);
        if (n == 0) {
            return;
        }
        out->len += (size_t)n;
    }
}

/* Runs it on bytes; the reply. Exit code 0 is part of the contract. */
static ProbeReply *probe_bytes(const void *data, size_t len)
{
    int in[2], out[2];
    assert_int_equal(pipe(in), 0);
    assert_int_equal(pipe(out), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[0]);
        close(in[1]);
        close(out[0]);
        close(out[1]);
        execl(TANDEM_BIN_DIR "/tandem-probe", "tandem-probe", (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    fs_write_all(in[1], data, len);
    close(in[1]);
    struct buf reply = {0};
    read_to_end(pid, out[0], &reply);
    close(out[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    ProbeReply *r = probe_reply__unpack(NULL, reply.len, (const uint8_t *)reply.data);
    assert_non_null(r);
    buf_free(&reply);
    return r;
}

static ProbeReply *probe(const ProbeRequest *request)
{
    size_t len = probe_request__get_packed_size(request);
    uint8_t *bytes = malloc(len + 1);
    assert_non_null(bytes);
    probe_request__pack(request, bytes);
    ProbeReply *r = probe_bytes(bytes, len);
    free(bytes);
    return r;
}

static ProbeReply *probe_model_dir(const char *dir)
{
    ModelSpec model = MODEL_SPEC__INIT;
    ProbeRequest request = PROBE_REQUEST__INIT;
    model.path = (char *)(uintptr_t)dir;
    request.model = &model;
    return probe(&request);
}

static ProbeReply *probe_file(const char *path, const char *format)
{
    SourceSpec source = SOURCE_SPEC__INIT, *list[] = {&source};
    ProbeRequest request = PROBE_REQUEST__INIT;
    source.path = (char *)(uintptr_t)path;
    source.format = (char *)(uintptr_t)format;
    request.n_sources = 1;
    request.sources = list;
    return probe(&request);
}

static void assert_refused(ProbeReply *r, const char *part)
{
    assert_non_null(r->error);
    if (!strstr(r->error, part)) {
        fail_msg("\"%s\" does not say \"%s\"", r->error, part);
    }
    assert_null(r->model);
    assert_int_equal(r->n_sources, 0);
    probe_reply__free_unpacked(r, NULL);
}

static void assert_no_error(const ProbeReply *r)
{
    if (r->error) {
        fail_msg("%s", r->error);
    }
}

/* Below tmp/in only. */
static ProbeReply *probe_below_in(const char *model_path, const char *model_config,
                                  const char *source_path)
{
    char dir[128], *dirs[] = {dir};
    Roots roots = ROOTS__INIT;
    ModelSpec model = MODEL_SPEC__INIT;
    SourceSpec source = SOURCE_SPEC__INIT, *list[] = {&source};
    ProbeRequest request = PROBE_REQUEST__INIT;
    snprintf(dir, sizeof dir, "%s/in", tmp);
    roots.tenant = (char *)(uintptr_t) "red";
    roots.read = dirs;
    roots.n_read = 1;
    request.roots = &roots;
    model.path = (char *)(uintptr_t)model_path;
    model.config = (char *)(uintptr_t)model_config;
    source.path = (char *)(uintptr_t)source_path;
    source.format = (char *)(uintptr_t) "text";
    request.model = model_path || model_config ? &model : NULL;
    request.sources = list;
    request.n_sources = source_path ? 1 : 0;
    return probe(&request);
}

static void assert_outside(ProbeReply *r, const char *field)
{
    char words[256];
    assert_int_equal(r->error_code, ERR_PERMISSION_DENIED);
    snprintf(words, sizeof words, "outside of what tenant red may read: %s/in", tmp);
    assert_non_null(r->error);
    assert_int_equal(strncmp(r->error, field, strlen(field)), 0);
    assert_refused(r, words);
}

/* ---- folders to break ---- */

static void copy_to(const char *name, const char *from)
{
    char *data;
    size_t len;
    assert_int_equal(fs_read_file(from, 1 << 24, &data, &len, NULL), 0);
    assert_int_equal(fs_write_atomic(in_tmp(name), data, len, 0600, NULL), 0);
    free(data);
}

static void copy_file(const char *from_dir, const char *name, size_t max_bytes)
{
    char path[1024], *data;
    size_t len;
    snprintf(path, sizeof path, "%s/%s", from_dir, name);
    assert_int_equal(fs_read_file(path, 1 << 24, &data, &len, NULL), 0);
    len = len < max_bytes ? len : max_bytes;
    assert_int_equal(fs_write_atomic(in_tmp(name), data, len, 0600, NULL), 0);
    free(data);
}

static void write_text(const char *name, const char *text)
{
    assert_int_equal(fs_write_atomic(in_tmp(name), text, strlen(text), 0600, NULL), 0);
}

/* A copy of tiny's config with one thing replaced. */
static void write_config(const char *from, const char *to)
{
    char *text;
    size_t len;
    assert_int_equal(fs_read_file(TINY "/config.json", 65536, &text, &len, NULL), 0);
    char *at = strstr(text, from);
    assert_non_null(at);
    struct buf b = {0};
    buf_append(&b, text, (size_t)(at - text));
    buf_puts(&b, to);
    buf_puts(&b, at + strlen(from));
    write_text("config.json", b.data);
    buf_free(&b);
    free(text);
}

/* ---- what is fine ---- */

static void a_good_folder_gives_its_facts(void **state)
{
    (void)state;
    ProbeReply *r = probe_model_dir(TINY);
    assert_no_error(r);
    assert_int_equal(r->model->num_params, 109888);
    assert_int_equal(r->model->size_bytes, 4 * 109888);
    assert_string_equal(r->model->dtype, "F32");
    assert_string_equal(r->model->path, TINY);
    assert_int_equal(r->model->n_files, 1);
    assert_string_equal(r->model->files[0], "model.safetensors");
    assert_int_equal(r->model->config->hidden_size, 64);
    assert_non_null(r->model->config->config_json);
    probe_reply__free_unpacked(r, NULL);
    r = probe_model_dir(TIED);
    assert_no_error(r);
    assert_true(r->model->config->tie_word_embeddings);
    probe_reply__free_unpacked(r, NULL);
}

static void a_config_alone_gives_a_model_without_weights(void **state)
{
    (void)state;
    ModelSpec model = MODEL_SPEC__INIT;
    ProbeRequest request = PROBE_REQUEST__INIT;
    model.config = (char *)TINY "/config.json";
    request.model = &model;
    request.has_device_peak = 1;
    request.device_peak = 1;
    ProbeReply *r = probe(&request);
    assert_no_error(r);
    assert_int_equal(r->model->num_params, 109888);
    assert_null(r->model->path);
    assert_true(r->peak_flops_fp32 > 1e6 && r->peak_flops_fp64 > 1e6);
    probe_reply__free_unpacked(r, NULL);
    model.config = (char *)TINY;
    assert_refused(probe(&request), "not a regular file");
}

static void data_files_give_tokens_and_the_largest_id(void **state)
{
    (void)state;
    ProbeReply *r = probe_file(TINY "/train.bin", "u16");
    assert_no_error(r);
    assert_int_equal(r->sources[0]->size_bytes, 5280);
    assert_int_equal(r->sources[0]->num_tokens, 2640);
    assert_true(r->sources[0]->max_token > 0 && r->sources[0]->max_token < 256);
    probe_reply__free_unpacked(r, NULL);
    write_text("a.txt", "hello~");
    r = probe_file(in_tmp("a.txt"), "text");
    assert_no_error(r);
    assert_int_equal(r->sources[0]->num_tokens, 6);
    assert_int_equal(r->sources[0]->max_token, '~');
    probe_reply__free_unpacked(r, NULL);
}

/* Rows of another format that somebody calls text; text that only begins like that isn't. */
static void a_text_of_json_lines_is_told_from_prose(void **state)
{
    (void)state;
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"hello~", NULL},
        {"{\"text\": \"a\"}\n{\"text\": \"b\"}\n", "jsonl"},
        {"\n {\"input_ids\": [1, 2], \"labels\": [1, 2]}\n", "tokenized-jsonl"},
        {"{\"labels\": [1], \"input_ids\": [1]}", "tokenized-jsonl"},
        {"{\"a\": 1}\nprose about \"input_ids\"\n", NULL},
        {"{x}\n", NULL},
        {"prose\n{\"input_ids\": [1]}\n", NULL},
        {"\n\n", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text("lines.txt", cases[i].text);
        ProbeReply *r = probe_file(in_tmp("lines.txt"), "text");
        assert_no_error(r);
        const char *word = r->sources[0]->looks_like;
        assert_string_equal(word ? word : "", cases[i].word ? cases[i].word : "");
        probe_reply__free_unpacked(r, NULL);
    }
    /* The line behind the first bytes is cut anywhere. */
    for (size_t len = 4080; len < 4100; len++) {
        struct buf b = {0};
        buf_printf(&b, "{\"t\": \"%*s\"}\n{\"t\": 1}\n", (int)len - 12, "");
        write_text("lines.txt", b.data);
        ProbeReply *r = probe_file(in_tmp("lines.txt"), "text");
        assert_no_error(r);
        assert_string_equal(r->sources[0]->looks_like, "jsonl");
        probe_reply__free_unpacked(r, NULL);
        buf_free(&b);
    }
}

/* ---- model folders that are wrong ---- */

static void missing_tensors_are_named_and_counted(void **state)
{
    (void)state;
    copy_file(TINY, "model.safetensors", SIZE_MAX);
    write_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
    assert_refused(probe_model_dir(tmp), "tensor model.layers.2.input_layernorm.weight is "
                                         "missing; 8 more tensors are wrong");
}

static void a_wrong_shape_is_named_with_both_shapes(void **state)
{
    (void)state;
    copy_file(TINY, "model.safetensors", SIZE_MAX);
    write_config("\"vocab_size\": 256", "\"vocab_size\": 300");
    assert_refused(probe_model_dir(tmp),
                   "tensor model.embed_tokens.weight has shape [256, 64], config.json asks for "
                   "[300, 64]; 1 more tensor is wrong");
}

/* A layer too many would be dropped in silence. */
static void a_tensor_that_the_model_does_not_know_is_refused(void **state)
{
    (void)state;
    copy_file(TINY, "model.safetensors", SIZE_MAX);
    write_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
    assert_refused(probe_model_dir(tmp), "is not a parameter of this model; 8 more");
}

static void a_truncated_file_is_refused(void **state)
{
    (void)state;
    copy_file(TINY, "config.json", SIZE_MAX);
    static const size_t sizes[] = {0, 4, 9, 700, 5000, 441695};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        copy_file(TINY, "model.safetensors", sizes[i]);
        assert_refused(probe_model_dir(tmp), "model.safetensors");
    }
}

/* What a download often holds: the way out is told. */
static void pickled_weights_are_refused_with_the_way_to_convert_them(void **state)
{
    (void)state;
    static const char *const names[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    copy_file(TINY, "config.json", SIZE_MAX);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(fs_write_atomic(in_tmp(names[i]), "{}", 2, 0600, NULL), 0);
        assert_refused(probe_model_dir(tmp), names[i]);
        assert_refused(probe_model_dir(tmp), "safe_serialization=True");
        assert_int_equal(unlink(in_tmp(names[i])), 0);
    }
}

/* A header length of almost 2^64, or one that the file could hold but no header should have. */
static void a_huge_header_is_refused(void **state)
{
    (void)state;
    copy_file(TINY, "config.json", SIZE_MAX);
    static const char max[16] = "\xff\xff\xff\xff\xff\xff\xff\x7f{}";
    assert_int_equal(fs_write_atomic(in_tmp("model.safetensors"), max, sizeof max, 0600, NULL), 0);
    assert_refused(probe_model_dir(tmp), "model.safetensors");
    static const char big[16] = "\x00\x00\x00\x20\x00\x00\x00\x00{}"; /* 512 MiB */
    assert_int_equal(fs_write_atomic(in_tmp("model.safetensors"), big, sizeof big, 0600, NULL), 0);
    assert_int_equal(truncate(in_tmp("model.safetensors"), (off_t)600 << 20), 0);
    assert_refused(probe_model_dir(tmp), "model.safetensors");
}

/* Nothing that isn't a regular file is opened for reading: a FIFO would hang the probe. */
static void folders_fifos_and_devices_are_not_read(void **state)
{
    (void)state;
    assert_refused(probe_model_dir(in_tmp("none")), "No such file");
    assert_refused(probe_model_dir(TINY "/config.json"), "not a folder");
    assert_refused(probe_model_dir(tmp), "config.json");
    assert_int_equal(mkfifo(in_tmp("config.json"), 0600), 0);
    assert_refused(probe_model_dir(tmp), "config.json: not a regular file");
    assert_int_equal(unlink(in_tmp("config.json")), 0);
    copy_file(TINY, "config.json", SIZE_MAX);
    assert_refused(probe_model_dir(tmp), "neither model.safetensors nor");
    assert_int_equal(mkfifo(in_tmp("model.safetensors"), 0600), 0);
    assert_refused(probe_model_dir(tmp), "not a regular file");
    assert_int_equal(unlink(in_tmp("model.safetensors")), 0);
    assert_int_equal(mkdir(in_tmp("model.safetensors"), 0700), 0);
    assert_refused(probe_model_dir(tmp), "not a regular file");
    assert_refused(probe_file(tmp, "text"), "not a regular file");
    assert_refused(probe_file("/dev/zero", "u16"), "not a regular file");
    assert_int_equal(mkfifo(in_tmp("pipe"), 0600), 0);
    assert_refused(probe_file(in_tmp("pipe"), "u16"), "not a regular file");
}

/* An index may name files of its folder only. */
static void an_index_can_not_lead_out_of_its_folder(void **state)
{
    (void)state;
    copy_file(TINY, "config.json", SIZE_MAX);
    write_text("model.safetensors.index.json",
               "{\"weight_map\": {\"model.norm.weight\": \"../../etc/x.safetensors\"}}");
    assert_refused(probe_model_dir(tmp), "not a .safetensors file of this folder");
    write_text("model.safetensors.index.json",
               "{\"weight_map\": {\"model.norm.weight\": \"a.safetensors\"}}");
    assert_refused(probe_model_dir(tmp), "a.safetensors");
}

static void a_sharded_folder_is_read_through_its_index(void **state)
{
    (void)state;
    copy_file(TINY, "config.json", SIZE_MAX);
    copy_file(TINY, "model.safetensors", SIZE_MAX);
    char from[1024];
    snprintf(from, sizeof from, "%s", in_tmp("model.safetensors"));
    assert_int_equal(rename(from, in_tmp("model-00001-of-00001.safetensors")), 0);
    write_text("model.safetensors.index.json",
               "{\"metadata\": {\"total_size\": 439552}, \"weight_map\": {\"model.norm.weight\": "
               "\"model-00001-of-00001.safetensors\"}}");
    ProbeReply *r = probe_model_dir(tmp);
    assert_no_error(r);
    assert_string_equal(r->model->files[0], "model-00001-of-00001.safetensors");
    probe_reply__free_unpacked(r, NULL);
}

/* ---- data and requests that are wrong ---- */

static void wrong_data_files_are_refused(void **state)
{
    (void)state;
    write_text("odd.bin", "abc");
    assert_refused(probe_file(in_tmp("odd.bin"), "u16"), "3 bytes");
    assert_refused(probe_file(in_tmp("odd.bin"), "u32"), "3 bytes");
    assert_refused(probe_file(in_tmp("odd.bin"), "parquet"), "\"parquet\" is not a data format");
    assert_refused(probe_file("corpus.txt", "text"), "\"corpus.txt\" is not an absolute path");
    assert_refused(probe_file(in_tmp("none.txt"), "text"), "No such file");
}

/* A name with control characters or broken UTF-8 must not make the reply unreadable. */
static void the_reply_can_be_read_whatever_a_file_holds(void **state)
{
    (void)state;
    write_text("config.json", "{\"model_type\": \"a\\u0007\\u0085b\"}");
    ProbeReply *r = probe_model_dir(tmp);
    assert_int_equal(text_check_message(&r->base, 65536, NULL), 0);
    assert_refused(r, "model_type");
}

/* Whatever stands on stdin, the answer is a reply with a sentence. */
static void a_malformed_request_is_answered(void **state)
{
    (void)state;
    assert_refused(probe_bytes("\xff\xff\xff", 3), "");
    ProbeReply *r = probe_bytes("", 0);
    assert_no_error(r);
    probe_reply__free_unpacked(r, NULL);
    size_t len = (size_t)2 << 20;
    char *big = calloc(1, len);
    assert_non_null(big);
    signal(SIGPIPE, SIG_IGN);
    assert_refused(probe_bytes(big, len), "probe request: longer than");
    free(big);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* ---- where files may lie ---- */

static void link_in(const char *target, const char *name)
{
    unlink(in_tmp(name));
    assert_int_equal(symlink(target, in_tmp(name)), 0);
}

/* Each file that a request can make the probe open is held below the roots. */
static void every_file_is_opened_below_the_roots(void **state)
{
    (void)state;
    char path[128], config[160];
    assert_int_equal(mkdir(in_tmp("in"), 0700), 0);
    assert_int_equal(mkdir(in_tmp("in/m"), 0700), 0);
    snprintf(path, sizeof path, "%s/in/m", tmp);
    snprintf(config, sizeof config, "%s/in/m/config.json", tmp);
    write_text("text", "text");
    write_text("in/text", "text");
    assert_outside(probe_below_in(TINY, NULL, NULL), "model.path: ");
    assert_outside(probe_below_in("/nowhere", NULL, NULL), "model.path: ");
    assert_outside(probe_below_in(NULL, TINY "/config.json", NULL), "model.config: ");
    assert_outside(probe_below_in(NULL, NULL, in_tmp("text")), "data.train: ");
    link_in(TINY, "in/link");
    assert_outside(probe_below_in(in_tmp("in/link"), NULL, NULL), "model.path: ");
    link_in(TINY "/config.json", "in/m/config.json");
    assert_outside(probe_below_in(NULL, config, NULL), "model.config: ");
    assert_outside(probe_below_in(path, NULL, NULL), "model.path: ");
    copy_to("in/m/config.json", TINY "/config.json");
    link_in(TINY "/model.safetensors", "in/m/model.safetensors");
    assert_outside(probe_below_in(path, NULL, NULL), "model.path: ");
    assert_int_equal(unlink(in_tmp("in/m/model.safetensors")), 0);
    link_in("/nowhere/index.json", "in/m/model.safetensors.index.json");
    assert_outside(probe_below_in(path, NULL, NULL), "model.path: ");
    assert_int_equal(unlink(in_tmp("in/m/model.safetensors.index.json")), 0);
    write_text("in/m/model.safetensors.index.json",
               "{\"weight_map\": {\"lm_head.weight\": \"a.safetensors\"}}");
    link_in(TINY "/model.safetensors", "in/m/a.safetensors");
    assert_outside(probe_below_in(path, NULL, NULL), "model.path: ");
    /* And what lies inside is taken. */
    assert_int_equal(unlink(in_tmp("in/m/model.safetensors.index.json")), 0);
    copy_to("in/m/model.safetensors", TINY "/model.safetensors");
    ProbeReply *r = probe_below_in(path, NULL, in_tmp("in/text"));
    assert_no_error(r);
    assert_int_equal(r->model->num_params, 109888);
    assert_int_equal(r->n_files, 3);
    probe_reply__free_unpacked(r, NULL);
}

/* What a model doesn't have is part of the answer: once it is there, the answer is another. */
static void an_answer_holds_while_its_files_are_as_they_were(void **state)
{
    (void)state;
    SourceSpec source = SOURCE_SPEC__INIT, *list[] = {&source};
    ProbeRequest request = PROBE_REQUEST__INIT;
    FileIdentity absent = FILE_IDENTITY__INIT, *known[2] = {NULL, &absent};
    write_text("text", "some text");
    struct stat st;
    assert_int_equal(stat(in_tmp("text"), &st), 0);
    while (clock_wall_us() < (int64_t)st.st_ctim.tv_sec * 1000000 + 1200000) {
        clock_sleep_ms(5);
    }
    source.path = strdup(in_tmp("text"));
    source.format = (char *)(uintptr_t) "text";
    request.n_sources = 1;
    request.sources = list;
    ProbeReply *first = probe(&request);
    assert_no_error(first);
    assert_int_equal(first->n_files, 1);
    known[0] = first->files[0];
    absent.path = strdup(in_tmp("other"));
    absent.has_absent = absent.absent = 1;
    request.known = known;
    request.n_known = 2;
    ProbeReply *r = probe(&request);
    assert_true(r->unchanged);
    assert_int_equal(r->n_sources, 0);
    probe_reply__free_unpacked(r, NULL);
    write_text("other", "now");
    r = probe(&request);
    assert_false(r->unchanged);
    assert_int_equal(r->n_sources, 1);
    probe_reply__free_unpacked(r, NULL);
    request.n_known = 1;
    write_text("text", "some text");
    r = probe(&request);
    assert_false(r->unchanged);
    assert_int_equal(r->n_sources, 1);
    probe_reply__free_unpacked(r, NULL);
    probe_reply__free_unpacked(first, NULL);
    free(source.path);
    free(absent.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_good_folder_gives_its_facts),
        T(a_config_alone_gives_a_model_without_weights),
        T(data_files_give_tokens_and_the_largest_id),
        T(a_text_of_json_lines_is_told_from_prose),
        T(missing_tensors_are_named_and_counted),
        T(a_wrong_shape_is_named_with_both_shapes),
        T(a_tensor_that_the_model_does_not_know_is_refused),
        T(a_truncated_file_is_refused),
        T(pickled_weights_are_refused_with_the_way_to_convert_them),
        T(a_huge_header_is_refused),
        T(folders_fifos_and_devices_are_not_read),
        T(an_index_can_not_lead_out_of_its_folder),
        T(a_sharded_folder_is_read_through_its_index),
        T(wrong_data_files_are_refused),
        T(the_reply_can_be_read_whatever_a_file_holds),
        T(a_malformed_request_is_answered),
        T(every_file_is_opened_below_the_roots),
        T(an_answer_holds_while_its_files_are_as_they_were),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
