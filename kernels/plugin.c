#include "kernels/plugin.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"

#define DRIVER "libcuda.so.1"
#define PLUGIN "libtandem_cuda.so"
#define PATH_BYTES 4096
#define WHY_BYTES (PATH_BYTES + 256)

/* What was found out when it was first asked for. */
static struct {
    pthread_mutex_t lock;
    bool is_known;
    const struct plugin *plugin; /* NULL: error says why */
    struct error error;
} cuda = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Does the file end before what would be mapped of it? What isn't a library at all is dlopen's. */
static bool is_cut_short(int fd)
{
    ElfW(Ehdr) head;
    struct stat st;
    if (fstat(fd, &st) != 0 || pread(fd, &head, sizeof head, 0) != sizeof head ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof(ElfW(Phdr))) {
        return false;
    }
    for (uint64_t i = 0; i < head.e_phnum; i++) {
        ElfW(Phdr) part;
        off_t at = (off_t)(head.e_phoff + i * sizeof part);
        if (pread(fd, &part, sizeof part, at) != sizeof part ||
            (part.p_type == PT_LOAD && (part.p_offset > (uint64_t)st.st_size ||
                                        part.p_filesz > (uint64_t)st.st_size - part.p_offset))) {
            return true;
        }
    }
    return false;
}

/* The library stays: what it has started doesn't end with it. NULL: why says why. Of a file that
 * was copied half dlopen would map what isn't there, and the process end without a word. */
static void *open_library(const char *path, char why[WHY_BYTES])
{
    int fd = *path == '/' ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    bool cut = fd >= 0 && is_cut_short(fd);
    if (fd >= 0) {
        close(fd);
    }
    if (cut) {
        snprintf(why, WHY_BYTES, "%s: the file is cut short: copy it again", path);
        return NULL;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, WHY_BYTES, "%s", dlerror());
    }
    return library;
}

static int find_driver(struct error *err)
{
    const char *named = getenv("TANDEM_CUDA_DRIVER");
    const char *path = named && *named ? named : DRIVER;
    char why[WHY_BYTES];
    if (open_library(path, why)) {
        return 0;
    }
    return error_set(err, ERR_FAILED_PRECONDITION,
                     "no NVIDIA driver (%s): install it, or use backend cpu", why);
}

/* Where the plug-in is; -1 if it is nowhere. */
static int find_plugin(char path[PATH_BYTES], struct error *err)
{
    const char *named = getenv("TANDEM_CUDA_PLUGIN");
    if (named && *named) {
        if (*named != '/' || strlen(named) >= PATH_BYTES) {
            return error_set(err, ERR_FAILED_PRECONDITION,
                             "TANDEM_CUDA_PLUGIN=%s: not an absolute path", named);
        }
        strcpy(path, named);
        if (access(path, F_OK) != 0) {
            return error_set(err, ERR_FAILED_PRECONDITION,
                             "no CUDA plug-in: TANDEM_CUDA_PLUGIN says %s, which isn't there",
                             path);
        }
        return 0;
    }
    char folder[PATH_BYTES];
    if (fs_self_dir(folder, sizeof folder, err) != 0) {
        return -1;
    }
    static const char *const below[] = {"", "../lib/"};
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        int length = snprintf(path, PATH_BYTES, "%s/%s" PLUGIN, folder, below[i]);
        if (length < PATH_BYTES && access(path, F_OK) == 0) {
            return 0;
        }
    }
    return error_set(err, ERR_FAILED_PRECONDITION,
                     "no CUDA plug-in: " PLUGIN " is neither in %s nor in %s/../lib: this "
                     "installation was built without CUDA (TANDEM_CUDA_PLUGIN may name one)",
                     folder, folder);
}

static int check_plugin(const struct plugin *p, const char *path, struct error *err)
{
    if (p->abi != TANDEM_PLUGIN_ABI) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "CUDA plug-in %s is of another version (its abi is %u, ours %u): install "
                         "both from one build",
                         path, p->abi, TANDEM_PLUGIN_ABI);
    }
    if (p->size < sizeof *p) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "CUDA plug-in %s is of an older version (its table has %u bytes, ours "
                         "%zu): install both from one build",
                         path, p->size, sizeof *p);
    }
    int32_t num;
    if (p->count(&num, err) != 0) {
        return -1;
    }
    if (num < 1) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        return error_set(err, ERR_FAILED_PRECONDITION, "the NVIDIA driver shows no device%s%s%s",
                         visible ? " (CUDA_VISIBLE_DEVICES is \"" : "", visible ? visible : "",
                         visible ? "\")" : "");
    }
    return 0;
}

static int load(const struct plugin **out, struct error *err)
{
    char path[PATH_BYTES];
    if (find_driver(err) != 0 || find_plugin(path, err) != 0) {
        return -1;
    }
    char why[WHY_BYTES];
    void *library = open_library(path, why);
    if (!library) {
        return error_set(err, ERR_FAILED_PRECONDITION, "CUDA plug-in: %s", why);
    }
    void *symbol = dlsym(library, TANDEM_PLUGIN_ENTRY);
    plugin_entry_fn entry;
    memcpy(&entry, &symbol, sizeof entry);
    const struct plugin *p = entry ? entry() : NULL;
    if (!p) {
        return error_set(err, ERR_FAILED_PRECONDITION,
                         "CUDA plug-in %s: no plug-in of ours: it has no " TANDEM_PLUGIN_ENTRY,
                         path);
    }
    if (check_plugin(p, path, err) != 0) {
        return -1;
    }
    *out = p;
    return 0;
}

int plugin_cuda(const struct plugin **out, struct error *err)
{
    pthread_mutex_lock(&cuda.lock);
    if (!cuda.is_known) {
        cuda.is_known = true;
        load(&cuda.plugin, &cuda.error);
    }
    if (!cuda.plugin && err) {
        *err = cuda.error;
    }
    *out = cuda.plugin;
    pthread_mutex_unlock(&cuda.lock);
    return *out ? 0 : -1;
}
