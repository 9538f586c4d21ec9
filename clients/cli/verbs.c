/* The verbs, in the order in which help lists them. */
#include "clients/cli/verbs.h"

#include <stddef.h>

const struct verb *const cli_verbs[] = {
    &verb_init,   &verb_explain, &verb_plan,    &verb_submit,   &verb_ls,       &verb_show,
    &verb_watch,  &verb_metrics, &verb_logs,    &verb_why,      &verb_cancel,   &verb_pause,
    &verb_resume, &verb_hold,    &verb_release, &verb_priority, &verb_ckpt,     &verb_nodes,
    &verb_drain,  &verb_undrain, &verb_top,     &verb_usage,    &verb_generate, &verb_admin,
    &verb_doctor, &verb_version, NULL,
};
