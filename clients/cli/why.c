#include "clients/cli/why.h"

#include <stdbool.h>
#include <string.h>

#include "base/clock.h"
#include "clients/cli/args.h"
#include "clients/cli/human.h"
#include "clients/cli/job.h"
#include "clients/cli/verbs.h"

/* "jobs 3 and 12", "job 3 and one of another tenant". */
static void print_holders(const WhyReply *w)
{
    size_t num_hidden = 0, num = 0;
    for (size_t i = 0; i < w->n_holders; i++) {
        num_hidden += w->holders[i] < 0;
    }
    size_t num_shown = w->n_holders - num_hidden;
    printf("held by    %s", num_shown == 0 ? "" : num_shown == 1 ? "job " : "jobs ");
    for (size_t i = 0; i < w->n_holders; i++) {
        if (w->holders[i] >= 0) {
            num++;
            printf("%s%lld",
                   num == 1           ? ""
                   : num == num_shown ? " and "
                                      : ", ",
                   (long long)w->holders[i]);
        }
    }
    if (num_hidden > 0) {
        printf("%s%s of another tenant", num_shown ? ", and " : "",
               num_hidden > 1 ? "jobs"
               : num_shown    ? "one"
                              : "a job");
    }
    printf("\n");
}

void why_print_wait(const WhyReply *w)
{
    char at[HUMAN_MAX], in[HUMAN_MAX];
    int64_t now_us = clock_wall_us();
    if (w->n_holders > 0) {
        print_holders(w);
    }
    if (w->place > 0) {
        printf("place      %d in the queue\n", w->place);
    }
    if (w->may_start_us > now_us) {
        printf("may start  %s, in %s, if all goes as expected\n",
               human_time(at, w->may_start_us, now_us),
               human_duration(in, (double)(w->may_start_us - now_us) / 1e6));
    }
}

static int run(struct cli *cli, int argc, char **argv)
{
    const struct arg_flag flags[] = {{0}};
    const char *ref;
    if (job_parse(flags, argc, argv, &ref)) {
        return EXIT_USAGE;
    }
    JobRef q = JOB_REF__INIT;
    ProtobufCMessage *reply;
    struct error err;
    char id[32];
    q.job = (char *)(uintptr_t)job_newest(cli, ref, id);
    if (cli_call(cli, "Jobs/Why", &q.base, &why_reply__descriptor, &reply, &err)) {
        return cli_fail(&err);
    }
    const WhyReply *w = (const WhyReply *)reply;
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        cli_print_message(cli, reply);
    } else {
        bool drained = false;
        for (size_t i = 0; i < w->n_reasons; i++) {
            printf("%s\n", w->reasons[i]);
            drained = drained || strstr(w->reasons[i], "drained)");
        }
        why_print_wait(w);
        if (drained) {
            printf("look at    `tandem nodes`: why devices are drained\n");
        }
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return EXIT_DONE;
}

const struct verb verb_why = {
    .name = "why",
    .args = "JOB",
    .help = "say why a job is in the state it is in",
    .text =
        "For a queued job: what it waits for, who holds that, its place in the queue and when it\n"
        "may start, as far as that can be said: running jobs by their pace and time limits.\n"
        "For one that ended: what ended it.\n\n"
        "  tandem why 7\n",
    .run = run,
};
