/* Many messages as one JSON array or YAML list. */
#ifndef TANDEM_CLIENTS_CLI_LIST_H
#define TANDEM_CLIENTS_CLI_LIST_H

#include "clients/cli/cli.h"

/* messages: an array of pointers to messages. */
void list_print(const struct cli *cli, const ProtobufCMessage *const *messages, size_t n);

#endif
