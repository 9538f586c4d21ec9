/* What sim_disk.c and its VFS share. */
#ifndef TANDEM_TESTS_SIM_DISK_PRIVATE_H
#define TANDEM_TESTS_SIM_DISK_PRIVATE_H

#include <stddef.h>

#include "tests/sim/sim_disk.h"

#define SHM_REGIONS_MAX 16
#define SHM_REGION_BYTES 32768

struct content {
    uint8_t *data; /* owned */
    size_t len, cap;
};

struct change {
    size_t at, len, bytes_at;
    bool truncate; /* to at */
};

struct file {
    char name[128];
    struct file *next;
    bool exists;   /* for the running program */
    bool survives; /* its name is durable */
    int num_open;
    struct content now;     /* as the running program sees it */
    struct content durable; /* as of the last sync, and what survives */
    struct content bytes;   /* of the changes since then */
    struct change *changes;
    size_t num_changes, cap_changes;
    void *shm[SHM_REGIONS_MAX];
};

struct sim_disk {
    struct sim_rng *rng;
    struct file *files;
    struct sim_disk_faults faults;
    bool frozen;
    int64_t freeze_in;
    int64_t spent_us;
};

struct sim_disk *sim_disk_in_use(void);
struct file *sim_disk_find(struct sim_disk *d, const char *name);
struct file *sim_disk_make(struct sim_disk *d, const char *name);
void sim_disk_free_file(struct file *f);
/* Return SQLite's codes. */
int sim_disk_write(struct sim_disk *d, struct file *f, const void *data, size_t len, size_t at);
int sim_disk_sync(struct sim_disk *d, struct file *f);
void sim_disk_truncate(struct sim_disk *d, struct file *f, size_t len);
void sim_disk_delete(struct sim_disk *d, struct file *f);
/* Makes the VFS the default one, once. */
void sim_disk_register(void);

#endif
