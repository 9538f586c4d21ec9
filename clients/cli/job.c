#include "clients/cli/job.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "clients/cli/away.h"
#include "clients/cli/terminal.h"
#include "plan/layout_rules.h"

enum { NAMESAKES_MAX = 100 };

static bool are_called(const ListJobsReply *r, const char *name)
{
    for (size_t i = 0; i < r->n_jobs; i++) {
        if (!r->jobs[i]->name || strcmp(r->jobs[i]->name, name) != 0) {
            return false; /* a server that doesn't know the question */
        }
    }
    return true;
}

/* NULL = err. */
static const char *find_newest(struct cli *cli, const char *ref, char id[32], struct error *err)
{
    ListJobsRequest q = LIST_JOBS_REQUEST__INIT;
    ProtobufCMessage *reply;
    q.name = (char *)(uintptr_t)ref;
    q.has_all = q.has_page_size = q.all = 1;
    q.page_size = NAMESAKES_MAX;
    if (strspn(ref, "0123456789") == strlen(ref)) {
        return ref;
    }
    if (cli_call(cli, "Jobs/List", &q.base, &list_jobs_reply__descriptor, &reply, err)) {
        return NULL;
    }
    const ListJobsReply *r = (const ListJobsReply *)reply;
    if (r->n_jobs > 1 && are_called(r, ref)) {
        snprintf(id, 32, "%lld", (long long)r->jobs[0]->id);
        fprintf(stderr, "tandem: %s: job %s, the newest of %zu%s\n", ref, id, r->n_jobs,
                r->next_before_id ? " and more" : "");
        ref = id;
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return ref;
}

const char *job_newest(struct cli *cli, const char *ref, char id[32])
{
    struct error err;
    const char *found = find_newest(cli, ref, id, &err);
    return found ? found : ref;
}

const char *job_newest_to_follow(struct cli *cli, const char *ref, char id[32])
{
    struct error err;
    const char *found;
    terminal_catch_interrupt();
    while (!(found = find_newest(cli, ref, id, &err)) && err.code == ERR_UNAVAILABLE &&
           !terminal_interrupted() && away_wait(cli, &err)) {
    }
    return found ? found : ref;
}

int job_get(struct cli *cli, const char *ref, Job **out, struct error *err)
{
    GetJobRequest q = GET_JOB_REQUEST__INIT;
    ProtobufCMessage *reply;
    q.job = (char *)(uintptr_t)ref;
    if (cli_call(cli, "Jobs/Get", &q.base, &job__descriptor, &reply, err)) {
        return -1;
    }
    *out = (Job *)reply;
    return 0;
}

const char *job_state_word(JobState state)
{
    const ProtobufCEnumValue *v =
        protobuf_c_enum_descriptor_get_value(&job_state__descriptor, (int)state);
    return v ? v->name + strlen("JOB_") : "UNKNOWN";
}

const char *job_state_colour(JobState state)
{
    switch (state) {
    case JOB_RUNNING:
        return "\033[36m";
    case JOB_SUCCEEDED:
        return "\033[32m";
    case JOB_FAILED:
        return "\033[31m";
    case JOB_CANCELLED:
        return "\033[35m";
    default:
        return "\033[33m";
    }
}

/* The cause, "" where it only repeats the state ("failed" of FAILED). Never NULL. */
static const char *job_cause(const char *cause, JobState state)
{
    return !cause || strcasecmp(cause, job_state_word(state)) == 0 ? "" : cause;
}

/* Does the message tell the cause in its first word: "paused-resume" in "resumed by ada"? */
static bool repeats(const char *message, const char *cause)
{
    for (const char *word = cause; *word; word += strspn(word, "-")) {
        size_t len = strcspn(word, "-");
        if (strncasecmp(message, word, len) == 0) {
            return true;
        }
        word += len;
    }
    return false;
}

void job_event_text(const Event *e, char *out, size_t size)
{
    const char *cause = job_cause(e->cause, e->has_to ? e->to : (JobState)0);
    const char *message = e->message ? e->message : "";
    cause = message[0] && repeats(message, cause) ? "" : cause;
    snprintf(out, size, "%s%s%s", cause, cause[0] && message[0] ? ": " : "", message);
}

bool job_has_ended(JobState state)
{
    return state == JOB_SUCCEEDED || state == JOB_FAILED || state == JOB_CANCELLED;
}

int job_report_end(const struct cli *cli, const Job *job)
{
    (void)cli;
    if (job->state == JOB_SUCCEEDED) {
        return EXIT_DONE;
    }
    const char *why = job->message && job->message[0] ? job->message : job->cause;
    fprintf(stderr, "tandem: job %lld (%s) %s%s%s\n", (long long)job->id,
            job->name ? job->name : "", job_state_word(job->state), why && why[0] ? ": " : "",
            why ? why : "");
    return EXIT_JOB_FAILED;
}

void job_layout(const JobSpec *spec, char *out, size_t size)
{
    const ParallelChoice *p = spec ? spec->parallel : NULL;
    struct buf words = {0};
    if (p && p->choice_case == PARALLEL_CHOICE__CHOICE_WORD) {
        buf_puts(&words, p->word);
    } else if (p && p->choice_case == PARALLEL_CHOICE__CHOICE_LAYOUT) {
        layout_words(&words, p->layout);
    }
    snprintf(out, size, "%s", words.len ? words.data : "one device");
    buf_free(&words);
}

int job_parse(const struct arg_flag *flags, int argc, char **argv, const char **job)
{
    int n = args_parse(flags, argc, argv, job, 1);
    return n < 0 ? EXIT_USAGE : n == 0 ? cli_usage(argv[0], JOB_WANTED) : 0;
}

const WhyReply *job_why(struct cli *cli, const Job *j)
{
    char id[32];
    JobRef q = JOB_REF__INIT;
    ProtobufCMessage *reply;
    struct error err;
    snprintf(id, sizeof id, "%lld", (long long)j->id);
    q.job = id;
    return cli_call(cli, "Jobs/Why", &q.base, &why_reply__descriptor, &reply, &err) == 0
               ? (const WhyReply *)reply
               : NULL;
}

int job_action(struct cli *cli, int argc, char **argv, const char *method)
{
    const struct arg_flag flags[] = {{0}};
    const char *word;
    if (job_parse(flags, argc, argv, &word)) {
        return EXIT_USAGE;
    }
    JobRef q = JOB_REF__INIT;
    q.job = (char *)(uintptr_t)word;
    return job_change(cli, method, &q.base);
}

int job_change(struct cli *cli, const char *method, const ProtobufCMessage *request)
{
    ProtobufCMessage *reply;
    struct error err;
    if (cli_call(cli, method, request, &job__descriptor, &reply, &err)) {
        return cli_fail(&err);
    }
    const Job *job = (const Job *)reply;
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        cli_print_message(cli, reply);
    } else {
        printf("job %lld (%s) %s%s%s\n", (long long)job->id, job->name ? job->name : "",
               job_state_word(job->state), job->message && job->message[0] ? ": " : "",
               job->message ? job->message : "");
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return EXIT_DONE;
}
