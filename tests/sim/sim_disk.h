/* A disk in memory under SQLite, on which only what was synced is sure to survive a crash. Writes
 * since then survive, are lost, or are torn by sectors, as chance has it. It is the default VFS of
 * the process; one disk is in use at a time.
 *
 * A frozen disk goes on serving its files to a program that is dead already but doesn't know:
 * nothing of that reaches what survives. Names (making and removing files) are durable at once. */
#ifndef TANDEM_TESTS_SIM_DISK_H
#define TANDEM_TESTS_SIM_DISK_H

#include "tests/sim/sim_rng.h"

struct sim_disk_faults {
    bool full;          /* no file grows */
    double write_error; /* chance of each */
    double sync_error;
    double read_error;
    int64_t sync_us_max; /* how long a sync takes */
};

struct sim_disk;

/* rng is kept. */
struct sim_disk *sim_disk_new(struct sim_rng *rng);
void sim_disk_free(struct sim_disk *d);
/* What is opened from now on is on d. */
void sim_disk_use(struct sim_disk *d);
/* All files of from, as they would survive. */
void sim_disk_copy(struct sim_disk *d, const struct sim_disk *from);
struct sim_disk_faults *sim_disk_faults(struct sim_disk *d);

/* Freezes in the nth write or sync from now on, before or after it; 0 = never. */
void sim_disk_freeze_at(struct sim_disk *d, int64_t nth);
void sim_disk_freeze(struct sim_disk *d);
bool sim_disk_is_frozen(const struct sim_disk *d);
/* Every file is closed: the disk is as it survived. */
void sim_disk_thaw(struct sim_disk *d);
/* Time that syncs took since the last call. */
int64_t sim_disk_take_us(struct sim_disk *d);

#endif
