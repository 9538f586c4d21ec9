/* Reads what a job names, for someone who may not or should not: model folders, config files, data
 * files. It trusts nothing that it reads and changes nothing. Deadlines are the caller's.
 *
 * Paths are absolute, and below the request's roots where it has any. Only regular files are read;
 * a FIFO or a device never blocks it. The reply names the files that it was read from, so that the
 * caller can have the answer confirmed later without reading them again. */
#ifndef TANDEM_RUNTIME_PROBE_PROBE_H
#define TANDEM_RUNTIME_PROBE_PROBE_H

#include "base/error.h"
#include "base/roots.h"
#include "proto/names.h"

/* Answers a request. What can't be met stands in reply->error, in the user's words. The reply is
 * freed with probe_reply__free_unpacked. */
ProbeReply *probe_answer(const ProbeRequest *request);

/* A reply that says only why not. */
ProbeReply *probe_refuse(const struct error *err);

/* model.path: config.json and every tensor of the parameter table, with its shape; or
 * model.config: a config.json alone. *out is freed with model_facts__free_unpacked. */
int probe_model(const struct roots *roots, const ModelSpec *model, ModelFacts **out,
                struct error *err);

/* A data file. *out is freed with data_facts__free_unpacked. */
int probe_source(const struct roots *roots, const SourceSpec *source, DataFacts **out,
                 struct error *err);

/* Absolute, and not longer than a path can be; field is for messages ("model.path"). */
int probe_check_path(const char *field, const char *path, struct error *err);

#endif
