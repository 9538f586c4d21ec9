/* Migrations: forward only, each once, with the SHA-256 of its text on record. Private to
 * server/store and its test. */
#ifndef TANDEM_SERVER_STORE_MIGRATE_H
#define TANDEM_SERVER_STORE_MIGRATE_H

#include "base/error.h"

struct store;

struct migration {
    const char *name; /* 0001_initial.sql: the number counts */
    const char *sql;
};
/* Embedded from migrations/, ended by name NULL. */
extern const struct migration migrations[];

/* Refuses a database that knows more than list does, and one whose record differs from list's
 * text. */
int migrate_check(struct store *s, const struct migration *list, struct error *err);
/* The same, then runs what has not run yet. */
int migrate_run(struct store *s, const struct migration *list, struct error *err);

#endif
