/* The verbs, one file each. */
#ifndef TANDEM_CLIENTS_CLI_VERBS_H
#define TANDEM_CLIENTS_CLI_VERBS_H

#include "clients/cli/cli.h"

extern const struct verb verb_admin;
extern const struct verb verb_cancel;
extern const struct verb verb_ckpt;
extern const struct verb verb_doctor;
extern const struct verb verb_drain;
extern const struct verb verb_explain;
extern const struct verb verb_generate;
extern const struct verb verb_hold;
extern const struct verb verb_init;
extern const struct verb verb_logs;
extern const struct verb verb_ls;
extern const struct verb verb_metrics;
extern const struct verb verb_nodes;
extern const struct verb verb_pause;
extern const struct verb verb_plan;
extern const struct verb verb_priority;
extern const struct verb verb_release;
extern const struct verb verb_resume;
extern const struct verb verb_show;
extern const struct verb verb_submit;
extern const struct verb verb_top;
extern const struct verb verb_undrain;
extern const struct verb verb_usage;
extern const struct verb verb_version;
extern const struct verb verb_watch;
extern const struct verb verb_why;

#endif
