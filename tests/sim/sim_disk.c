#include "tests/sim/sim_disk.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "tests/sim/sim_disk_private.h"

static struct sim_disk *in_use;

/* ---- content ---- */

static void grow(struct content *c, size_t len)
{
    if (len > c->cap) {
        size_t cap = c->cap ? c->cap : 8192;
        while (cap < len) {
            cap *= 2;
        }
        c->data = realloc(c->data, cap);
        ASSERT(c->data);
        c->cap = cap;
    }
    if (len > c->len) {
        memset(c->data + c->len, 0, len - c->len);
        c->len = len;
    }
}

static void put(struct content *c, size_t at, const void *data, size_t len)
{
    grow(c, at + len);
    memcpy(c->data + at, data, len);
}

static void set(struct content *c, const struct content *from)
{
    c->len = 0;
    if (from->len) {
        put(c, 0, from->data, from->len);
    }
}

static void log_change(struct file *f, size_t at, const void *data, size_t len, bool truncate)
{
    if (f->num_changes == f->cap_changes) {
        f->cap_changes = f->cap_changes ? 2 * f->cap_changes : 64;
        f->changes = realloc(f->changes, f->cap_changes * sizeof *f->changes);
        ASSERT(f->changes);
    }
    struct change *c = &f->changes[f->num_changes++];
    *c = (struct change){.at = at, .len = len, .bytes_at = f->bytes.len, .truncate = truncate};
    if (len) {
        put(&f->bytes, f->bytes.len, data, len);
    }
}

static void apply(struct file *f, const struct change *c, size_t from, size_t len)
{
    if (c->truncate) {
        f->durable.len = c->at < f->durable.len ? c->at : f->durable.len;
    } else {
        put(&f->durable, c->at + from, f->bytes.data + c->bytes_at + from, len);
    }
}

static void forget_changes(struct file *f)
{
    f->num_changes = 0;
    f->bytes.len = 0;
}

static void make_durable(struct file *f)
{
    for (size_t i = 0; i < f->num_changes; i++) {
        apply(f, &f->changes[i], 0, f->changes[i].len);
    }
    forget_changes(f);
}

#define SECTOR 512

static void survive(struct file *f, struct sim_rng *rng, int how)
{
    for (size_t i = 0; i < f->num_changes; i++) {
        const struct change *c = &f->changes[i];
        if (how == 1 || (how == 2 && sim_rng_chance(rng, 0.5)) || (how == 3 && c->truncate)) {
            apply(f, c, 0, c->len);
        } else if (how == 3) {
            for (size_t at = 0; at < c->len; at += SECTOR) {
                if (sim_rng_chance(rng, 0.7)) {
                    apply(f, c, at, c->len - at < SECTOR ? c->len - at : SECTOR);
                }
            }
        }
    }
    forget_changes(f);
}

/* ---- the disk ---- */

struct file *sim_disk_find(struct sim_disk *d, const char *name)
{
    for (struct file *f = d->files; f; f = f->next) {
        if (strcmp(f->name, name) == 0) {
            return f;
        }
    }
    return NULL;
}

struct file *sim_disk_make(struct sim_disk *d, const char *name)
{
    struct file *f = sim_disk_find(d, name);
    if (!f) {
        f = calloc(1, sizeof *f);
        ASSERT(f);
        snprintf(f->name, sizeof f->name, "%s", name);
        f->next = d->files;
        d->files = f;
    }
    if (!f->exists) {
        f->exists = true;
        f->now.len = 0;
        f->survives = f->survives || !d->frozen;
    }
    return f;
}

void sim_disk_free_file(struct file *f)
{
    for (int i = 0; i < SHM_REGIONS_MAX; i++) {
        free(f->shm[i]);
    }
    free(f->now.data);
    free(f->durable.data);
    free(f->bytes.data);
    free(f->changes);
    free(f);
}

struct sim_disk *sim_disk_new(struct sim_rng *rng)
{
    struct sim_disk *d = calloc(1, sizeof *d);
    ASSERT(d);
    d->rng = rng;
    return d;
}

void sim_disk_free(struct sim_disk *d)
{
    while (d && d->files) {
        struct file *f = d->files;
        d->files = f->next;
        sim_disk_free_file(f);
    }
    if (in_use == d) {
        in_use = NULL;
    }
    free(d);
}

struct sim_disk *sim_disk_in_use(void)
{
    return in_use;
}

void sim_disk_use(struct sim_disk *d)
{
    sim_disk_register();
    in_use = d;
}

void sim_disk_copy(struct sim_disk *d, const struct sim_disk *from)
{
    for (const struct file *f = from->files; f; f = f->next) {
        if (f->survives) {
            struct file *to = sim_disk_make(d, f->name);
            set(&to->now, &f->durable);
            set(&to->durable, &f->durable);
        }
    }
}

struct sim_disk_faults *sim_disk_faults(struct sim_disk *d)
{
    return &d->faults;
}

void sim_disk_freeze_at(struct sim_disk *d, int64_t nth)
{
    d->freeze_in = nth;
}

void sim_disk_freeze(struct sim_disk *d)
{
    if (d->frozen) {
        return;
    }
    d->frozen = true;
    d->freeze_in = 0;
    int how = (int)sim_rng_between(d->rng, 0, 3);
    for (struct file *f = d->files; f; f = f->next) {
        if (f->survives) {
            survive(f, d->rng, how);
        }
    }
}

bool sim_disk_is_frozen(const struct sim_disk *d)
{
    return d->frozen;
}

void sim_disk_thaw(struct sim_disk *d)
{
    d->frozen = false;
    for (struct file *f = d->files; f; f = f->next) {
        ASSERT(f->num_open == 0);
        f->exists = f->survives;
        set(&f->now, &f->durable);
        forget_changes(f);
        for (int i = 0; i < SHM_REGIONS_MAX; i++) {
            free(f->shm[i]);
            f->shm[i] = NULL;
        }
    }
}

int64_t sim_disk_take_us(struct sim_disk *d)
{
    int64_t us = d->spent_us;
    d->spent_us = 0;
    return us;
}

/* ---- what a file operation does ---- */

static void count_op(struct sim_disk *d)
{
    if (d->freeze_in > 0 && --d->freeze_in == 0) {
        sim_disk_freeze(d);
    }
}

int sim_disk_write(struct sim_disk *d, struct file *f, const void *data, size_t len, size_t at)
{
    bool before = sim_rng_chance(d->rng, 0.5);
    if (before) {
        count_op(d);
    }
    if (!d->frozen && d->faults.full && at + len > f->now.len) {
        return SQLITE_FULL;
    }
    if (!d->frozen && sim_rng_chance(d->rng, d->faults.write_error)) {
        return SQLITE_IOERR_WRITE;
    }
    put(&f->now, at, data, len);
    if (!d->frozen && f->survives) {
        log_change(f, at, data, len, false);
    }
    if (!before) {
        count_op(d);
    }
    return SQLITE_OK;
}

void sim_disk_truncate(struct sim_disk *d, struct file *f, size_t len)
{
    f->now.len = len < f->now.len ? len : f->now.len;
    if (!d->frozen && f->survives) {
        log_change(f, len, NULL, 0, true);
    }
}

int sim_disk_sync(struct sim_disk *d, struct file *f)
{
    bool before = sim_rng_chance(d->rng, 0.5);
    if (before) {
        count_op(d);
    }
    d->spent_us += sim_rng_delay(d->rng, 100, d->faults.sync_us_max);
    if (!d->frozen && sim_rng_chance(d->rng, d->faults.sync_error)) {
        return SQLITE_IOERR_FSYNC;
    }
    if (!d->frozen && f->survives) {
        make_durable(f);
    }
    if (!before) {
        count_op(d);
    }
    return SQLITE_OK;
}

void sim_disk_delete(struct sim_disk *d, struct file *f)
{
    f->exists = false;
    f->now.len = 0;
    if (!d->frozen) {
        f->survives = false;
        f->durable.len = 0;
        forget_changes(f);
    }
}
