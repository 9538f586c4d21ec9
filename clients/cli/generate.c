#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "clients/cli/args.h"
#include "clients/cli/generate.h"
#include "clients/cli/job.h"
#include "clients/cli/verbs.h"

enum { MAX_ARGS = 16, TOKENS_MIN = 16, TOKENS_MAX = 200 };

bool generate_split_ref(const char *text, char *job, size_t size, int64_t *step)
{
    const char *at = strrchr(text, '@');
    size_t len = at ? (size_t)(at - text) : strlen(text);
    *step = -1;
    if (len == 0 || len >= size || (at && !args_read_int(at + 1, step))) {
        return false;
    }
    memcpy(job, text, len);
    job[len] = 0;
    return true;
}

static int checkpoint_dir(struct cli *cli, const char *job, int64_t step, char out[PATH_MAX],
                          struct error *err)
{
    CheckpointRef q = CHECKPOINT_REF__INIT;
    ProtobufCMessage *reply;
    q.job = (char *)(uintptr_t)job;
    q.has_step = step >= 0;
    q.step = step;
    if (cli_call(cli, "Checkpoints/Get", &q.base, &checkpoint__descriptor, &reply, err)) {
        return -1;
    }
    const Checkpoint *c = (const Checkpoint *)reply;
    snprintf(out, PATH_MAX, "%s", c->path ? c->path : "");
    protobuf_c_message_free_unpacked(reply, NULL);
    return 0;
}

/* The folder with the weights of JOB[@STEP]: its export, else its newest checkpoint. *seq_len: as
 * far as the model has learned to look. */
static int job_dir(struct cli *cli, const char *ref, char out[PATH_MAX], int64_t *seq_len,
                   struct error *err)
{
    char name[256], id[32];
    int64_t step;
    if (!generate_split_ref(ref, name, sizeof name, &step)) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: expected a folder, JOB or JOB@STEP", ref);
    }
    Job *job;
    if (job_get(cli, job_newest(cli, name, id), &job, err)) {
        return error_wrap(err, "%s is no folder here, and as a job", ref);
    }
    *seq_len = job->spec && job->spec->training ? job->spec->training->seq_len : 0;
    bool exported = step < 0 && job->export_dir && job->export_dir[0];
    int r = 0;
    if (exported) {
        snprintf(out, PATH_MAX, "%s", job->export_dir);
    } else {
        snprintf(id, sizeof id, "%lld", (long long)job->id);
        r = checkpoint_dir(cli, id, step, out, err);
        char path[PATH_MAX];
        if (r == 0 && out[0] != '/' && fs_join(path, sizeof path, job->job_dir, out)) {
            snprintf(out, PATH_MAX, "%s", path);
        }
    }
    job__free_unpacked(job, NULL);
    return r;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int exec_tool(char **argv, struct error *err)
{
    char dir[PATH_MAX], path[PATH_MAX];
    if (fs_self_dir(dir, sizeof dir, err) || !fs_join(path, sizeof path, dir, "tandem-tool")) {
        return -1;
    }
    fflush(stdout);
    execv(path, argv);
    return error_errno(err, errno, "start %s", path);
}

/* Beyond the length that it was trained on a model writes rubbish: how many tokens it can add. */
static int64_t tokens_left(int64_t seq_len, const char *prompt)
{
    int64_t left = seq_len - (int64_t)strlen(prompt);
    return left < TOKENS_MIN ? TOKENS_MIN : left > TOKENS_MAX ? TOKENS_MAX : left;
}

/* A flag for tandem-tool, if it was given. */
static int pass(char **out, int num, const char *name, const char *value)
{
    if (value) {
        out[num++] = (char *)(uintptr_t)name;
        out[num++] = (char *)(uintptr_t)value;
    }
    return num;
}

/* tandem-tool does it, and checks the numbers; it speaks as the name it is called by. */
static int run(struct cli *cli, int argc, char **argv)
{
    const char *model = NULL, *prompt = NULL, *word = NULL;
    const char *max_tokens = NULL, *temperature = NULL, *top_k = NULL, *seed = NULL;
    const struct arg_flag flags[] = {
        {"model", 0, ARG_TEXT, &model, NULL},
        {"prompt", 0, ARG_TEXT, &prompt, NULL},
        {"max-tokens", 0, ARG_TEXT, &max_tokens, NULL},
        {"temperature", 0, ARG_TEXT, &temperature, NULL},
        {"top-k", 0, ARG_TEXT, &top_k, NULL},
        {"seed", 0, ARG_TEXT, &seed, NULL},
        {0},
    };
    if (args_parse(flags, argc, argv, &word, 1) < 0) {
        return EXIT_USAGE;
    }
    if (model && word) {
        return cli_usage(argv[0], "\"%s\" is one word too many", word);
    }
    model = model ? model : word;
    if (!model) {
        return cli_usage(argv[0], "which model? Give --model FOLDER, JOB or JOB@STEP");
    }
    if (!prompt) {
        return cli_usage(argv[0], "which text is it to continue? Give --prompt TEXT");
    }
    if (!prompt[0]) {
        return cli_usage(argv[0], "--prompt: an empty text can't be continued");
    }
    char dir[PATH_MAX], length[32];
    int64_t seq_len = 0;
    struct error err;
    if (is_folder(model)) {
        snprintf(dir, sizeof dir, "%s", model);
    } else if (job_dir(cli, model, dir, &seq_len, &err)) {
        return cli_fail(&err);
    }
    if (seq_len > 0 && !max_tokens) {
        snprintf(length, sizeof length, "%lld", (long long)tokens_left(seq_len, prompt));
        max_tokens = length;
    }
    char *out[MAX_ARGS] = {(char[]){"tandem"}, (char[]){"generate"}};
    int num = pass(out, 2, "--model", dir);
    num = pass(out, num, "--prompt", prompt);
    num = pass(out, num, "--max-tokens", max_tokens);
    num = pass(out, num, "--temperature", temperature);
    num = pass(out, num, "--top-k", top_k);
    num = pass(out, num, "--seed", seed);
    ASSERT(num < MAX_ARGS);
    exec_tool(out, &err);
    return cli_fail(&err);
}

const struct verb verb_generate = {
    .name = "generate",
    .args = "--model FOLDER|JOB[@STEP] --prompt TEXT [...]",
    .help = "let a model continue a text",
    .text = "JOB stands for the job's exported weights, or its newest checkpoint while it runs;\n"
            "JOB@STEP for the checkpoint of that step. TEXT is bytes for a model whose\n"
            "vocab_size is 256. For any other it is token numbers, '1 15 27', and so is what\n"
            "comes back, up to an eos_token_id of its config.\n\n"
            "  --max-tokens N     tokens to make (default 200; of a job as many as fit into its\n"
            "                     training.seq_len: beyond that a model writes rubbish)\n"
            "  --temperature T    below 1 more likely, above 1 wilder; 0 = always the likeliest\n"
            "                     (default 0.8)\n"
            "  --top-k K          choose among the K likeliest; 0 = all (default 0)\n"
            "  --seed S           the same seed gives the same text (default 1)\n\n"
            "  tandem generate --model shakespeare --prompt 'The ' --max-tokens 300\n"
            "  tandem generate --model shakespeare@400 --prompt 'The '\n",
    .run = run,
    .text_only = true,
};
