/* The documentation of tandemd's config file, from the descriptors and comments of admin.proto. */
#ifndef TANDEM_CLIENTS_CLI_EXPLAIN_SERVER_H
#define TANDEM_CLIENTS_CLI_EXPLAIN_SERVER_H

#include "clients/cli/cli.h"

/* "server" or a path below it, "server.limits.connections". An exit code. */
int explain_server(const struct cli *cli, const char *path);
/* The whole reference, docs/config.md. */
void explain_server_markdown(void);

#endif
