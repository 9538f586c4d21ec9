#include "runtime/probe/probe.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/peak.h"
#include "proto/text.h"
#include "runtime/probe/files.h"
#include "runtime/probe/host.h"

#define SOURCES_MAX 1024

int probe_check_path(const char *field, const char *path, struct error *err)
{
    if (!path || path[0] != '/') {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: \"%.200s\" is not an absolute path", field,
                         path ? path : "");
    }
    if (strlen(path) >= PATH_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: longer than a path can be", field);
    }
    return 0;
}

static int answer_sources(const ProbeRequest *request, const struct roots *roots, ProbeReply *reply,
                          struct error *err)
{
    if (request->n_sources > SOURCES_MAX) {
        return error_set(err, ERR_INVALID_ARGUMENT, "data.train: %zu sources, at most %d",
                         request->n_sources, SOURCES_MAX);
    }
    reply->sources = calloc(request->n_sources + 1, sizeof *reply->sources);
    ASSERT(reply->sources);
    for (size_t i = 0; i < request->n_sources; i++) {
        if (probe_source(roots, request->sources[i], &reply->sources[i], err) != 0) {
            return -1;
        }
        reply->n_sources++;
    }
    return 0;
}

static int answer(const ProbeRequest *request, const struct roots *roots, ProbeReply *reply,
                  struct error *err)
{
    if (request->tokenizer && strcmp(request->tokenizer, "bytes") != 0) {
        return error_set(err, ERR_UNIMPLEMENTED,
                         "data.tokenizer: \"%.200s\" is not supported yet; bytes is",
                         request->tokenizer);
    }
    if (request->model && probe_model(roots, request->model, &reply->model, err) != 0) {
        return -1;
    }
    if (answer_sources(request, roots, reply, err) != 0) {
        return -1;
    }
    if (request->device_peak) {
        reply->has_peak_flops_fp32 = reply->has_peak_flops_fp64 = 1;
        reply->peak_flops_fp32 = peak_flops(DTYPE_F32);
        reply->peak_flops_fp64 = peak_flops(DTYPE_F64);
    }
    if (request->discover) {
        host_discover(reply);
    }
    return 0;
}

static ProbeReply *new_reply(void)
{
    ProbeReply *reply = malloc(sizeof *reply);
    ASSERT(reply);
    probe_reply__init(reply);
    return reply;
}

ProbeReply *probe_refuse(const struct error *err)
{
    ProbeReply *reply = new_reply();
    reply->has_error_code = 1;
    reply->error_code = (int32_t)err->code;
    reply->error = strdup(err->text);
    ASSERT(reply->error);
    /* A file's name or content may hold bytes that no message carries. */
    if (text_check_message(&reply->base, TEXT_MAX_BYTES, NULL) != 0) {
        for (char *c = reply->error; *c; c++) {
            *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
        }
    }
    return reply;
}

ProbeReply *probe_answer(const ProbeRequest *request)
{
    ProbeReply *reply = new_reply();
    struct roots roots = files_roots(request, NULL);
    if (request->n_known && files_unchanged(&roots, request->known, request->n_known)) {
        reply->has_unchanged = reply->unchanged = 1;
        return reply;
    }
    struct error err = {0};
    roots = files_roots(request, reply);
    if (answer(request, &roots, reply, &err) == 0 &&
        text_check_message(&reply->base, TEXT_MAX_BYTES, &err) == 0) {
        return reply;
    }
    /* Half an answer is no answer. */
    probe_reply__free_unpacked(reply, NULL);
    return probe_refuse(&err);
}
