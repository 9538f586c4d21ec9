/* The data folder of a server, and the two files in the user's config folder that say where the
 * server is. */
#ifndef TANDEM_SERVER_FOLDER_H
#define TANDEM_SERVER_FOLDER_H

#include <stddef.h>

#include "base/error.h"

/* Makes path if need be (0700), makes it absolute in out, and locks it for this process until the
 * process ends. A second server is refused. */
int folder_open(const char *path, char *out, size_t size, struct error *err);

/* Writes ~/.config/tandem/{server,token} ($XDG_CONFIG_HOME). */
int folder_announce(const char *address, const char *token, struct error *err);

#endif
