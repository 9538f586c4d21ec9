/* What several verbs do with a job: fetch it, name its state, tell whether it has ended. */
#ifndef TANDEM_CLIENTS_CLI_JOB_H
#define TANDEM_CLIENTS_CLI_JOB_H

#include "clients/cli/args.h"
#include "clients/cli/cli.h"

#define JOB_WANTED "which job? Give its number or its name"

/* Parses the words of a verb that wants a job and nothing else. 0, or EXIT_USAGE after a sentence
 * on stderr. */
int job_parse(const struct arg_flag *flags, int argc, char **argv, const char **job);

/* For verbs that only look: the newest job of a name that several have, and a word about it on
 * stderr. id holds the answer where it is another than ref; what is wrong is found by who asks
 * next. */
const char *job_newest(struct cli *cli, const char *ref, char id[32]);
/* The same for who follows it: waits for a server that is away. */
const char *job_newest_to_follow(struct cli *cli, const char *ref, char id[32]);
/* *out: job__free_unpacked(out, NULL). ref: number or unambiguous name. */
int job_get(struct cli *cli, const char *ref, Job **out, struct error *err);
/* What a job waits for; NULL: nobody says, perhaps it has started or ended meanwhile. Freed with
 * protobuf_c_message_free_unpacked. */
const WhyReply *job_why(struct cli *cli, const Job *j);
/* "RUNNING" */
const char *job_state_word(JobState state);
/* Escape sequence for it. */
const char *job_state_colour(JobState state);
/* What an event says beside its state: cause and message, once where they say the same. */
void job_event_text(const Event *e, char *out, size_t size);
bool job_has_ended(JobState state);
/* EXIT_DONE for SUCCEEDED, else the reason on stderr and EXIT_JOB_FAILED. */
int job_report_end(const struct cli *cli, const Job *job);
/* "data 2, tensor 4", "one device", "auto" */
void job_layout(const JobSpec *spec, char *out, size_t size);
/* Runs "Jobs/Cancel" and the like on argv's only word, prints what became of the job. */
int job_action(struct cli *cli, int argc, char **argv, const char *method);
/* One call that answers with the job as it is then, and prints that. Gives the exit code. */
int job_change(struct cli *cli, const char *method, const ProtobufCMessage *request);

#endif
