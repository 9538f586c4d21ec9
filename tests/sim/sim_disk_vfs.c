/* SQLite's way to the disk in use. One connection at a time: locks always succeed. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tests/sim/sim_disk_private.h"

struct handle {
    sqlite3_file base; /* first */
    struct sim_disk *disk;
    struct file *file;
    bool temporary; /* file is ours alone */
};

static int do_close(sqlite3_file *f)
{
    struct handle *h = (struct handle *)f;
    h->file->num_open--;
    if (h->temporary) {
        sim_disk_free_file(h->file);
    }
    return SQLITE_OK;
}

static int do_read(sqlite3_file *f, void *out, int len, sqlite3_int64 at)
{
    const struct handle *h = (const struct handle *)f;
    const struct content *c = &h->file->now;
    if (!h->disk->frozen && sim_rng_chance(h->disk->rng, h->disk->faults.read_error)) {
        return SQLITE_IOERR_READ;
    }
    size_t from = (size_t)at < c->len ? (size_t)at : c->len;
    size_t have = c->len - from < (size_t)len ? c->len - from : (size_t)len;
    if (have) {
        memcpy(out, c->data + from, have);
    }
    memset((char *)out + have, 0, (size_t)len - have);
    return have == (size_t)len ? SQLITE_OK : SQLITE_IOERR_SHORT_READ;
}

static int do_write(sqlite3_file *f, const void *data, int len, sqlite3_int64 at)
{
    struct handle *h = (struct handle *)f;
    return sim_disk_write(h->disk, h->file, data, (size_t)len, (size_t)at);
}

static int do_truncate(sqlite3_file *f, sqlite3_int64 len)
{
    struct handle *h = (struct handle *)f;
    sim_disk_truncate(h->disk, h->file, (size_t)len);
    return SQLITE_OK;
}

static int do_sync(sqlite3_file *f, int flags)
{
    (void)flags;
    struct handle *h = (struct handle *)f;
    return sim_disk_sync(h->disk, h->file);
}

static int do_size(sqlite3_file *f, sqlite3_int64 *out)
{
    *out = (sqlite3_int64)((struct handle *)f)->file->now.len;
    return SQLITE_OK;
}

static int do_lock(sqlite3_file *f, int level)
{
    (void)f;
    (void)level;
    return SQLITE_OK;
}

static int do_check_lock(sqlite3_file *f, int *out)
{
    (void)f;
    *out = 0;
    return SQLITE_OK;
}

static int do_control(sqlite3_file *f, int op, void *arg)
{
    (void)f;
    (void)op;
    (void)arg;
    return SQLITE_NOTFOUND;
}

static int do_sector(sqlite3_file *f)
{
    (void)f;
    return 4096;
}

/* As unix says of itself: a write changes no byte beside it. */
static int do_traits(sqlite3_file *f)
{
    (void)f;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

static int do_shm_map(sqlite3_file *f, int region, int size, int extend, void volatile **out)
{
    struct file *file = ((struct handle *)f)->file;
    if (region >= SHM_REGIONS_MAX || size > SHM_REGION_BYTES) {
        return SQLITE_NOMEM;
    }
    if (!file->shm[region] && extend) {
        file->shm[region] = calloc(1, SHM_REGION_BYTES);
    }
    *out = file->shm[region];
    return SQLITE_OK;
}

static int do_shm_lock(sqlite3_file *f, int offset, int n, int flags)
{
    (void)f;
    (void)offset;
    (void)n;
    (void)flags;
    return SQLITE_OK;
}

static void do_shm_barrier(sqlite3_file *f)
{
    (void)f;
}

static int do_shm_unmap(sqlite3_file *f, int forget)
{
    struct file *file = ((struct handle *)f)->file;
    for (int i = 0; forget && i < SHM_REGIONS_MAX; i++) {
        free(file->shm[i]);
        file->shm[i] = NULL;
    }
    return SQLITE_OK;
}

static const sqlite3_io_methods methods = {
    2,           do_close,       do_read,       do_write,   do_truncate, do_sync,   do_size,
    do_lock,     do_lock,        do_check_lock, do_control, do_sector,   do_traits, do_shm_map,
    do_shm_lock, do_shm_barrier, do_shm_unmap,  NULL,       NULL};

static int do_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *out, int flags, int *got)
{
    (void)vfs;
    struct handle *h = (struct handle *)out;
    struct sim_disk *d = sim_disk_in_use();
    memset(h, 0, sizeof *h);
    ASSERT(d);
    h->disk = d;
    h->temporary = !name || (flags & SQLITE_OPEN_DELETEONCLOSE);
    if (h->temporary) {
        h->file = calloc(1, sizeof *h->file);
        ASSERT(h->file);
    } else {
        struct file *f = sim_disk_find(d, name);
        if (!(f && f->exists) && !(flags & SQLITE_OPEN_CREATE)) {
            return SQLITE_CANTOPEN;
        }
        h->file = sim_disk_make(d, name);
    }
    h->file->num_open++;
    h->base.pMethods = &methods;
    if (got) {
        *got = flags;
    }
    return SQLITE_OK;
}

static int do_delete(sqlite3_vfs *vfs, const char *name, int sync_dir)
{
    (void)vfs;
    (void)sync_dir;
    struct file *f = sim_disk_find(sim_disk_in_use(), name);
    if (!f || !f->exists) {
        return SQLITE_IOERR_DELETE_NOENT;
    }
    sim_disk_delete(sim_disk_in_use(), f);
    return SQLITE_OK;
}

static int do_access(sqlite3_vfs *vfs, const char *name, int flags, int *out)
{
    (void)vfs;
    (void)flags;
    const struct file *f = sim_disk_find(sim_disk_in_use(), name);
    *out = f && f->exists && (flags != SQLITE_ACCESS_EXISTS || f->now.len > 0);
    return SQLITE_OK;
}

static int do_full_path(sqlite3_vfs *vfs, const char *name, int size, char *out)
{
    (void)vfs;
    snprintf(out, (size_t)size, "%s", name);
    return SQLITE_OK;
}

static int do_random(sqlite3_vfs *vfs, int size, char *out)
{
    (void)vfs;
    struct sim_disk *d = sim_disk_in_use();
    for (int i = 0; i < size; i++) {
        out[i] = d ? (char)sim_rng_u64(d->rng) : 0;
    }
    return size;
}

static int do_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    sim_disk_in_use()->spent_us += us;
    return us;
}

static int do_time(sqlite3_vfs *vfs, sqlite3_int64 *out)
{
    (void)vfs;
    *out = 212667465600000; /* some day of 2026; nothing of ours asks */
    return SQLITE_OK;
}

static int do_last_error(sqlite3_vfs *vfs, int size, char *out)
{
    (void)vfs;
    (void)size;
    (void)out;
    return 0;
}

void sim_disk_register(void)
{
    static sqlite3_vfs vfs = {.iVersion = 2,
                              .szOsFile = sizeof(struct handle),
                              .mxPathname = 120,
                              .zName = "sim",
                              .xOpen = do_open,
                              .xDelete = do_delete,
                              .xAccess = do_access,
                              .xFullPathname = do_full_path,
                              .xRandomness = do_random,
                              .xSleep = do_sleep,
                              .xGetLastError = do_last_error,
                              .xCurrentTimeInt64 = do_time};
    static bool done;
    if (!done) {
        done = true;
        ASSERT(sqlite3_vfs_register(&vfs, 1) == SQLITE_OK);
    }
}
