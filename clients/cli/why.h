/* What a queued job waits for, in lines of a page. */
#ifndef TANDEM_CLIENTS_CLI_WHY_H
#define TANDEM_CLIENTS_CLI_WHY_H

#include "proto/names.h"

/* Who holds what it waits for, its place, when it may start: those that are known. */
void why_print_wait(const WhyReply *w);

#endif
