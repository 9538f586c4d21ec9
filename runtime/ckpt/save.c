#include "runtime/ckpt/ckpt.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/fs.h"
#include "runtime/ckpt/folder.h"
#include "runtime/ckpt/outline.h"
#include "runtime/ckpt/part.h"
#include "runtime/ckpt/shard.h"

struct ckpt_save {
    char dir[PATH_MAX];
    struct ckpt_meta meta;
    enum dtype precision; /* of the run */
    int32_t writer, num_writers;
    /* Of the files that are this writer's own: {name: {bytes, tensors, and sha256 where this writer
     * alone wrote it}}. */
    json_t *files; /* owned */
};

/* One file that this rank has something to do with, while it is written. */
struct job {
    const struct ckpt_state *state;
    char name[PART_FILE_MAX], path[PATH_MAX];
    struct outline outline;
    const struct outline_line *line; /* the tensor under way */
    uint64_t line_at;                /* where it begins in the file */
    struct shard_writer *writer;     /* all of it is ours */
    int fd;                          /* else */
};

static int out_of_memory(const char *path, struct error *err)
{
    return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", path);
}

/* ---- writing -----------------------------------------------------------------------------------
 */

static int write_run(void *arg, const struct state_run *run, struct error *err)
{
    const struct job *j = arg;
    size_t size = dtype_size(j->state->dtype);
    const void *data = state_at(j->state, j->line->part, run->at);
    size_t len = (size_t)run->numel * size;
    return j->writer ? shard_append(j->writer, data, len, err)
                     : shard_write_at(j->fd, j->path, data, len,
                                      j->line_at + (uint64_t)run->whole * size, err);
}

static int write_runs(struct job *j, struct error *err)
{
    for (int32_t i = 0; i < j->outline.num; i++) {
        j->line = &j->outline.lines[i];
        j->line_at = j->outline.header_len + j->outline.tensors[i].begin;
        if (state_each_owned(j->state, j->line->part, j->line->param, write_run, j, err) != 0) {
            return -1;
        }
    }
    return 0;
}

/* All of the file is this rank's: runs come in the order in which they lie in it. */
static int write_alone(struct job *j, struct shard_digest *digest, struct error *err)
{
    if (shard_create(&j->writer, j->path, err) != 0) {
        return -1;
    }
    if (shard_append(j->writer, j->outline.header, j->outline.header_len, err) != 0 ||
        write_runs(j, err) != 0) {
        shard_discard(j->writer);
        return -1;
    }
    return shard_finish(j->writer, digest, err);
}

/* With others. They all know where what lies, so nobody waits for the owner, who gives the file
 * its header and its length. */
static int write_shared(struct job *j, bool owner, struct error *err)
{
    const struct outline *o = &j->outline;
    j->writer = NULL;
    j->fd = shard_open(j->path, err);
    if (j->fd < 0) {
        return -1;
    }
    int rc = 0;
    if (owner && ftruncate(j->fd, (off_t)(o->header_len + o->data_bytes)) != 0) {
        rc = error_errno(err, errno, "%s: lay out", j->path);
    }
    if (rc == 0 && owner) {
        rc = shard_write_at(j->fd, j->path, o->header, o->header_len, 0, err);
    }
    if (rc == 0) {
        rc = write_runs(j, err);
    }
    return shard_close(j->fd, j->path, rc == 0 ? err : NULL) == 0 ? rc : -1;
}

/* The file's line in this writer's notes; the digest where it is known. */
static int note_file(struct ckpt_save *s, const struct job *j, const struct shard_digest *digest,
                     struct error *err)
{
    const struct outline *o = &j->outline;
    json_t *tensors = json_array();
    for (int32_t i = 0; i < o->num; i++) {
        json_array_append_new(tensors, json_string(o->lines[i].name));
    }
    bool all = json_array_size(tensors) == (size_t)o->num;
    json_t *file = json_pack("{s:I, s:o}", "bytes", (json_int_t)(o->header_len + o->data_bytes),
                             "tensors", tensors);
    if (!all || !file ||
        (digest && json_object_set_new(file, "sha256", json_string(digest->sha256)) != 0) ||
        json_object_set(s->files, j->name, file) != 0) {
        json_decref(file);
        return out_of_memory(j->path, err);
    }
    json_decref(file);
    return 0;
}

/* Replicas have the same bits: each writes some of the files. */
static bool is_replicas(const struct ckpt_save *s, const struct ckpt_state *state, int32_t file)
{
    return state->num_replicas <= 1 ||
           (int64_t)file * state->num_replicas / s->num_writers == state->replica_idx;
}

static int write_outlined(struct ckpt_save *s, struct job *j, bool owner, bool ours,
                          struct error *err)
{
    int64_t all = outline_numel(&j->outline);
    int64_t owned = ours ? outline_owned_numel(&j->outline, j->state) : 0;
    if (!owner) {
        return owned > 0 ? write_shared(j, false, err) : 0;
    }
    if (owned == all) {
        struct shard_digest digest;
        return write_alone(j, &digest, err) == 0 ? note_file(s, j, &digest, err) : -1;
    }
    return write_shared(j, true, err) == 0 ? note_file(s, j, NULL, err) : -1;
}

static int write_file(struct ckpt_save *s, const struct ckpt_state *state, const char *kind,
                      int32_t file, struct error *err)
{
    bool owner = file == s->writer, ours = is_replicas(s, state, file);
    struct job j = {.state = state, .fd = -1};
    if (!owner && !ours) {
        return 0;
    }
    part_file(kind, file, j.name);
    if (folder_file(s->dir, j.name, j.path, sizeof j.path, err) != 0 ||
        outline_new(&j.outline, state, kind, file, s->num_writers, err) != 0) {
        return -1;
    }
    int rc = write_outlined(s, &j, owner, ours, err);
    outline_free(&j.outline);
    return rc;
}

static int write_files(struct ckpt_save *s, const struct ckpt_state *state, struct error *err)
{
    for (int32_t f = 0; f < s->num_writers; f++) {
        if (write_file(s, state, PART_WEIGHTS, f, err) != 0 ||
            (state->exp_avg.data && write_file(s, state, PART_OPTIM, f, err) != 0)) {
            return -1;
        }
    }
    return 0;
}

/* Space of a save that failed is given back at once: the disk may be full. */
static void remove_own(const struct ckpt_save *s)
{
    static const char *const kinds[] = {PART_NOTES, PART_WEIGHTS, PART_OPTIM};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char name[PART_FILE_MAX], path[PATH_MAX];
        part_file(kinds[i], s->writer, name);
        if (fs_join(path, sizeof path, s->dir, name)) {
            unlink(path);
        }
    }
}

int ckpt_save_write(struct ckpt_save **out, const char *parent, const struct ckpt_state *state,
                    const struct ckpt_meta *meta, int32_t writer, int32_t num_writers,
                    struct error *err)
{
    ASSERT(writer >= 0 && writer < num_writers && num_writers <= FOLDER_WRITERS_MAX);
    ASSERT(state->dtype == DTYPE_F32 || (state->dtype == DTYPE_F64 && !state->bf16));
    ASSERT(!state->exp_avg.data == !state->exp_avg_sq.data);
    struct folder_name name = {meta->step, meta->attempt, true};
    struct ckpt_save *s = calloc(1, sizeof *s);
    if (!s) {
        return out_of_memory(parent, err);
    }
    s->meta = *meta;
    s->precision = state->bf16 ? DTYPE_BF16 : state->dtype;
    s->writer = writer;
    s->num_writers = num_writers;
    s->files = json_object();
    int rc = s->files ? folder_path(parent, &name, s->dir, sizeof s->dir, err)
                      : out_of_memory(parent, err);
    if (rc == 0) {
        rc = fs_mkdirs(s->dir, 0775, err);
    }
    if (rc == 0) {
        rc = write_files(s, state, err);
        if (rc != 0) {
            remove_own(s);
            error_wrap(err, "save step %lld", (long long)meta->step);
        }
    }
    if (rc != 0) {
        ckpt_save_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

void ckpt_save_free(struct ckpt_save *s)
{
    if (s) {
        json_decref(s->files);
        free(s);
    }
}

/* ---- sealing -----------------------------------------------------------------------------------
 */

/* What several wrote is hashed as it lies there now. */
static int read_back(const struct ckpt_save *s, const char *name, json_t *file, struct error *err)
{
    char path[PATH_MAX];
    struct shard_digest digest;
    json_int_t bytes = json_integer_value(json_object_get(file, "bytes"));
    if (folder_file(s->dir, name, path, sizeof path, err) != 0 ||
        shard_digest_file(path, &digest, err) != 0) {
        return -1;
    }
    if (digest.size_bytes != bytes) {
        return error_set(err, ERR_DATA_LOSS, "%s: has %lld bytes, %lld were written", path,
                         (long long)digest.size_bytes, (long long)bytes);
    }
    return json_object_set_new(file, "sha256", json_string(digest.sha256)) == 0
               ? 0
               : out_of_memory(path, err);
}

static int seal(struct ckpt_save *s, struct error *err)
{
    const char *name;
    json_t *file;
    json_object_foreach(s->files, name, file)
    {
        if (!json_object_get(file, "sha256") && read_back(s, name, file, err) != 0) {
            return -1;
        }
    }
    return part_write(s->dir, &s->meta, s->precision, s->writer, s->num_writers, s->files, err);
}

int ckpt_save_seal(struct ckpt_save *s, struct error *err)
{
    if (seal(s, err) == 0) {
        return 0;
    }
    remove_own(s);
    return error_wrap(err, "save step %lld", (long long)s->meta.step);
}
