/* Facts about model, data and this host without a server: runs tandem-probe, which lies beside this
 * program, as the same user. */
#ifndef TANDEM_CLIENTS_CLI_LOCAL_PROBE_H
#define TANDEM_CLIENTS_CLI_LOCAL_PROBE_H

#include "base/error.h"
#include "proto/names.h"

/* Without a look at the data where with_data is false. Paths in spec are absolute. *out has no
 * error in it; freed with probe_reply__free_unpacked. */
int local_probe(const JobSpec *spec, bool with_data, bool device_peak, ProbeReply **out,
                struct error *err);
/* What this host has; *out has a host with a name. */
int local_probe_host(ProbeReply **out, struct error *err);

#endif
