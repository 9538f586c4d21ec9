#include "runtime/ckpt/safetensors.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/fs.h"

/* Each shard holds a descriptor; the largest public models have a few hundred. */
#define SHARDS_MAX 800
#define INDEX_MAX_BYTES 100000000u

struct entry {
    const struct st_tensor *tensor;
    const struct st_file *file;
};

struct st_folder {
    struct st_file **files; /* owned */
    char **names;           /* owned; of the files, in the folder; sorted */
    int32_t num_files;
    struct entry *entries; /* owned; sorted by tensor name */
    int64_t num_entries;
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->tensor->name, ((const struct entry *)b)->tensor->name);
}

static bool good_shard_name(const char *name)
{
    size_t n = strlen(name);
    static const char suffix[] = ".safetensors";
    return n > sizeof suffix - 1 && n <= NAME_MAX && !strchr(name, '/') && name[0] != '.' &&
           strcmp(name + n - (sizeof suffix - 1), suffix) == 0;
}

static int out_of_memory(const char *path, struct error *err)
{
    return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: out of memory", path);
}

/* Adds a shard's name once. */
static int add_name(struct st_folder *f, const char *index, const char *name, struct error *err)
{
    if (!good_shard_name(name)) {
        return error_set(err, ERR_INVALID_ARGUMENT,
                         "%s: weight_map names \"%.100s\": not a .safetensors file of this folder",
                         index, name);
    }
    /* Names come in runs: the last one is the likely one. */
    for (int32_t i = f->num_files; i-- > 0;) {
        if (strcmp(f->names[i], name) == 0) {
            return 0;
        }
    }
    if (f->num_files == SHARDS_MAX) {
        return error_set(err, ERR_RESOURCE_EXHAUSTED, "%s: more than %d shards", index, SHARDS_MAX);
    }
    f->names[f->num_files] = strdup(name);
    if (!f->names[f->num_files]) {
        return out_of_memory(index, err);
    }
    f->num_files++;
    return 0;
}

static int read_names(struct st_folder *f, const char *index, const json_t *map, struct error *err)
{
    const char *tensor;
    json_t *value;
    if (!json_is_object(map) || json_object_size(map) == 0) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: weight_map is missing or empty", index);
    }
    json_object_foreach((json_t *)(uintptr_t)map, tensor, value)
    {
        if (!json_is_string(value)) {
            return error_set(err, ERR_INVALID_ARGUMENT, "%s: weight_map of \"%.200s\": not a name",
                             index, tensor);
        }
        if (add_name(f, index, json_string_value(value), err) != 0) {
            return -1;
        }
    }
    qsort(f->names, (size_t)f->num_files, sizeof *f->names, by_text);
    return 0;
}

static int open_files(struct st_folder *f, const struct roots *roots, const char *dir,
                      struct error *err)
{
    for (int32_t i = 0; i < f->num_files; i++) {
        char path[PATH_MAX];
        if (!fs_join(path, sizeof path, dir, f->names[i])) {
            return error_set(err, ERR_INVALID_ARGUMENT, "%s: path is too long", dir);
        }
        if (st_open(&f->files[i], roots, path, err) != 0) {
            return -1;
        }
        f->num_entries += st_file_header(f->files[i])->num_tensors;
    }
    return 0;
}

/* One sorted list over all files; a tensor in two of them is an error. */
static int merge(struct st_folder *f, const char *dir, struct error *err)
{
    f->entries = calloc((size_t)f->num_entries + 1, sizeof *f->entries);
    if (!f->entries) {
        return out_of_memory(dir, err);
    }
    int64_t n = 0;
    for (int32_t i = 0; i < f->num_files; i++) {
        const struct st_header *h = st_file_header(f->files[i]);
        for (int32_t k = 0; k < h->num_tensors; k++) {
            f->entries[n++] = (struct entry){&h->tensors[k], f->files[i]};
        }
    }
    qsort(f->entries, (size_t)n, sizeof *f->entries, by_name);
    for (int64_t i = 1; i < n; i++) {
        if (by_name(&f->entries[i - 1], &f->entries[i]) == 0) {
            return error_set(err, ERR_INVALID_ARGUMENT, "%s: tensor \"%s\" is also in %s",
                             st_file_path(f->entries[i - 1].file), f->entries[i].tensor->name,
                             st_file_path(f->entries[i].file));
        }
    }
    return 0;
}

/* Is each tensor in the shard that the index says? */
static int check_map(const struct st_folder *f, const char *index, const json_t *map,
                     struct error *err)
{
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, value)
    {
        const struct st_file *file = NULL;
        const char *shard = json_string_value(value);
        const struct st_tensor *t = st_folder_find(f, tensor, &file);
        const char *path = t ? st_file_path(file) : "";
        const char *slash = strrchr(path, '/');
        if (!t || strcmp(slash ? slash + 1 : path, shard) != 0) {
            return error_set(err, ERR_INVALID_ARGUMENT,
                             "%s: weight_map says that tensor \"%.200s\" is in %s; it isn't", index,
                             tensor, shard);
        }
    }
    return 0;
}

static int read_index(struct st_folder *f, const struct roots *roots, const char *dir,
                      const char *index, const char *text, size_t len, struct error *err)
{
    json_error_t fault;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &fault);
    if (!root) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s:%d:%d: %s", index, fault.line, fault.column,
                         fault.text);
    }
    const json_t *map = json_object_get(root, "weight_map");
    int rc = read_names(f, index, map, err);
    if (rc == 0) {
        rc = open_files(f, roots, dir, err);
    }
    if (rc == 0) {
        rc = merge(f, dir, err);
    }
    if (rc == 0) {
        rc = check_map(f, index, map, err);
    }
    json_decref(root);
    return rc;
}

static int open_single(struct st_folder *f, const struct roots *roots, const char *dir,
                       struct error *err)
{
    f->names[0] = strdup("model.safetensors");
    if (!f->names[0]) {
        return out_of_memory(dir, err);
    }
    f->num_files = 1;
    return open_files(f, roots, dir, err) == 0 ? merge(f, dir, err) : -1;
}

/* Neither file is there: weights of another kind are the usual reason. */
static int no_weights(const struct roots *roots, const char *dir, struct error *err)
{
    static const char *const pickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++) {
        int fd =
            fs_join(path, sizeof path, dir, pickles[i]) ? roots_open(roots, path, NULL, NULL) : -1;
        if (fd >= 0) {
            close(fd);
            return error_set(err, ERR_NOT_FOUND,
                             "%s: holds %s and no model.safetensors; pickled weights can run any "
                             "code and aren't read: convert them in Python, "
                             "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW, "
                             "safe_serialization=True)",
                             dir, pickles[i]);
        }
    }
    return error_set(err, ERR_NOT_FOUND,
                     "%s: holds neither model.safetensors nor model.safetensors.index.json", dir);
}

/* model.safetensors where there is one. "Not there" is found out by opening: what lies outside of
 * the roots isn't to be told from what doesn't exist. */
static int open_folder(struct st_folder *f, const struct roots *roots, const char *dir,
                       struct error *err)
{
    char index[PATH_MAX], *text;
    size_t len;
    struct error why = {0};
    if (!fs_join(index, sizeof index, dir, "model.safetensors.index.json")) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: path is too long", dir);
    }
    if (open_single(f, roots, dir, &why) == 0) {
        return 0;
    }
    if (why.code != ERR_NOT_FOUND) {
        return error_set(err, why.code, "%s", why.text);
    }
    free(f->names[0]);
    f->names[0] = NULL;
    f->num_files = 0;
    if (roots_read_file(roots, index, INDEX_MAX_BYTES, &text, &len, &why) != 0) {
        if (why.code == ERR_NOT_FOUND) {
            return no_weights(roots, dir, err);
        }
        return error_set(err, why.code, "%s", why.text);
    }
    int rc = read_index(f, roots, dir, index, text, len, err);
    free(text);
    return rc;
}

int st_folder_open(struct st_folder **out, const struct roots *roots, const char *dir,
                   struct error *err)
{
    struct st_folder *f = calloc(1, sizeof *f);
    if (f) {
        f->files = calloc(SHARDS_MAX, sizeof *f->files);
        f->names = calloc(SHARDS_MAX, sizeof *f->names);
    }
    if (!f || !f->files || !f->names) {
        st_folder_close(f);
        return out_of_memory(dir, err);
    }
    if (open_folder(f, roots, dir, err) != 0) {
        st_folder_close(f);
        return -1;
    }
    *out = f;
    return 0;
}

void st_folder_close(struct st_folder *f)
{
    if (!f) {
        return;
    }
    for (int32_t i = 0; i < f->num_files; i++) {
        st_close(f->files[i]);
        free(f->names[i]);
    }
    free(f->files);
    free(f->names);
    free(f->entries);
    free(f);
}

const struct st_tensor *st_folder_find(const struct st_folder *f, const char *name,
                                       const struct st_file **file)
{
    struct st_tensor wanted = {.name = (char *)(uintptr_t)name};
    struct entry key = {&wanted, NULL};
    const struct entry *e = bsearch(&key, f->entries, (size_t)f->num_entries, sizeof key, by_name);
    if (!e) {
        return NULL;
    }
    *file = e->file;
    return e->tensor;
}

int32_t st_folder_num_files(const struct st_folder *f)
{
    return f->num_files;
}

const char *st_folder_file_name(const struct st_folder *f, int32_t i)
{
    return f->names[i];
}

int64_t st_folder_num_tensors(const struct st_folder *f)
{
    return f->num_entries;
}

const struct st_tensor *st_folder_tensor(const struct st_folder *f, int64_t i)
{
    return f->entries[i].tensor;
}
