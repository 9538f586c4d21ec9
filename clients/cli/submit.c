#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "clients/cli/args.h"
#include "clients/cli/follow.h"
#include "clients/cli/human.h"
#include "clients/cli/job_file.h"
#include "clients/cli/verbs.h"

enum { RETRY_FOR_MS = 5000, RETRY_EVERY_MS = 250 };

/* The same key on every attempt of this submission: a repeat finds the job of the first. */
static int random_key(char out[33], struct error *err)
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        return error_set(err, ERR_INTERNAL, "no random numbers");
    }
    for (size_t i = 0; i < sizeof bytes; i++) {
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
    return 0;
}

static int submit(struct cli *cli, const SubmitRequest *q, SubmitReply **out, struct error *err)
{
    int64_t until = clock_mono_ms() + RETRY_FOR_MS;
    ProtobufCMessage *reply;
    while (cli_call(cli, "Jobs/Submit", &q->base, &submit_reply__descriptor, &reply, err)) {
        if (err->code != ERR_UNAVAILABLE || !cli->channel || clock_mono_ms() > until) {
            return -1;
        }
        rpc_channel_wait(cli->channel, RETRY_EVERY_MS);
    }
    *out = (SubmitReply *)reply;
    return 0;
}

static void print_plan(const PlanSummary *p)
{
    char params[HUMAN_MAX], mem[HUMAN_MAX];
    printf("  model    %s, %s parameters\n", p->model && p->model[0] ? p->model : "?",
           human_count(params, (double)p->num_params));
    printf("  layout   %s on %lld device%s, %s, backend %s\n",
           p->layout && p->layout[0] ? p->layout : "one device", (long long)p->devices,
           p->devices == 1 ? "" : "s", p->precision ? p->precision : "?",
           p->backend ? p->backend : "?");
    printf("  steps    %lld, %lld micro-batch%s each\n", (long long)p->total_steps,
           (long long)p->micro_batches, p->micro_batches == 1 ? "" : "es");
    printf("  memory   %s a rank\n", human_bytes(mem, (double)p->mem_bytes_per_rank));
    for (size_t i = 0; i < p->n_notes; i++) {
        printf("  note     %s\n", p->notes[i]);
    }
}

static void print_reply(const struct cli *cli, const SubmitReply *r, bool quiet)
{
    if (cli->format == FORMAT_JSON || cli->format == FORMAT_YAML) {
        cli_print_message(cli, &r->base);
    } else if (quiet) {
        if (r->job) {
            printf("%lld\n", (long long)r->job->id);
        }
    } else {
        if (r->job && r->job->state == JOB_HELD) {
            printf("job %lld (%s) is held: `tandem release %lld` puts it into the queue\n",
                   (long long)r->job->id, r->job->name, (long long)r->job->id);
        } else if (r->job) {
            printf("job %lld (%s) is queued\n", (long long)r->job->id, r->job->name);
        } else {
            printf("the job would be accepted; nothing was submitted\n");
        }
        if (r->plan) {
            print_plan(r->plan);
        }
    }
    fflush(stdout);
}

static int submit_spec(struct cli *cli, const struct job_file *job, bool dry_run, bool quiet,
                       SubmitReply **out)
{
    SubmitRequest q = SUBMIT_REQUEST__INIT;
    char key[33];
    struct error err;
    q.spec = job->spec;
    q.idempotency_key = key;
    q.has_dry_run = 1;
    q.dry_run = dry_run;
    if (random_key(key, &err) || submit(cli, &q, out, &err)) {
        job_file_place(job, &err);
        return cli_fail(&err);
    }
    print_reply(cli, *out, quiet);
    return EXIT_DONE;
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct arg_texts sets = {0};
    bool follow = false, wait = false, dry_run = false, quiet = false, hold = false;
    const struct arg_flag flags[] = {
        {"set", 0, ARG_TEXTS, &sets, NULL},
        {"follow", 'f', ARG_BOOL, &follow, NULL},
        {"wait", 'w', ARG_BOOL, &wait, NULL},
        {"dry-run", 'n', ARG_BOOL, &dry_run, NULL},
        {"quiet", 'q', ARG_BOOL, &quiet, NULL},
        {"hold", 'H', ARG_BOOL, &hold, NULL},
        {0},
    };
    const char *file;
    int n = args_parse(flags, argc, argv, &file, 1);
    if (n < 0) {
        return EXIT_USAGE;
    }
    if (n == 0) {
        return cli_usage(argv[0], "which job file? `tandem init` writes one to start from");
    }
    if (hold && sets.num == ARG_TEXTS_MAX) {
        return cli_usage(argv[0], "--hold: too many changes; say hold: true in the file");
    }
    if (hold) {
        sets.items[sets.num++] = "hold=true";
    }
    struct error err;
    struct job_file job;
    if (job_file_read(&job, file, sets.items, sets.num, &err)) {
        return cli_fail(&err);
    }
    SubmitReply *reply = NULL;
    int code = submit_spec(cli, &job, dry_run, quiet, &reply);
    job_file_free(&job);
    if (code == EXIT_DONE && reply->job && (follow || wait)) {
        char id[32];
        snprintf(id, sizeof id, "%lld", (long long)reply->job->id);
        code = follow_job(cli, id, !follow);
    }
    if (reply) {
        submit_reply__free_unpacked(reply, NULL);
    }
    return code;
}

const struct verb verb_submit = {
    .name = "submit",
    .args = "FILE [--set a.b=c]... [--follow|--wait] [--hold] [--dry-run] [-q]",
    .help = "submit a job file",
    .text =
        "  --set a.b=c   change a field of the file: --set training.steps=100\n"
        "  -f, --follow  then watch the job to its end\n"
        "  -w, --wait    then wait for its end in silence\n"
        "  -H, --hold    keep it out of the queue until `tandem release`\n"
        "  -n, --dry-run check and plan only\n"
        "  -q, --quiet   print the job's number alone\n\n"
        "Relative paths in the file count from the file's folder, those in --set from here.\n"
        "`-` reads the file from standard input. With --follow and --wait the exit code is 0 if\n"
        "the job succeeded, 3 if not.\n\n"
        "  tandem submit job.yaml --set training.optimizer.lr=1e-3 --follow\n"
        "  job=$(tandem submit job.yaml -q)\n",
    .run = run,
};
