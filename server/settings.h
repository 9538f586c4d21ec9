/* The config file of a tandemd that others reach (ServerConfig in admin.proto): read, and checked
 * as far as that goes without starting anything. */
#ifndef TANDEM_SERVER_SETTINGS_H
#define TANDEM_SERVER_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"
#include "proto/names.h"

struct settings {
    char *path, *text; /* owned; the file as it was read, for places in messages */
    size_t len;
    ServerConfig *values; /* owned */
};

/* The caller frees with settings_free. */
int settings_read(struct settings *out, const char *path, struct error *err);
/* Everything but what the command line may have replaced (data_dir, listen, devices). Errors name
 * file, line and field. */
int settings_check(const struct settings *c, struct error *err);
/* Is every value within its bounds? *field: the one that isn't (a literal). */
int settings_check_scheduler(const SchedulerConfig *c, const char **field, struct error *err);
/* Fails with file, line and field in front of the text. */
int settings_fail(const struct settings *c, struct error *err, const char *field, const char *fmt,
                  ...) __attribute__((format(printf, 4, 5)));
void settings_free(struct settings *c);

#endif
