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

enum { MAX_ARGS = 256, TOKENS_MIN = 16, TOKENS_MAX = 200 };

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
    if (job_get(cli, name, &job, err)) {
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

/* "--name VALUE" or "--name=VALUE" at argv[i]: the value, else NULL. */
static const char *value_of(char **argv, int argc, int i, const char *name)
{
    size_t len = strlen(name);
    if (strncmp(argv[i], name, len) != 0 || (argv[i][len] && argv[i][len] != '=')) {
        return NULL;
    }
    return argv[i][len] ? argv[i] + len + 1 : i + 1 < argc ? argv[i + 1] : "";
}

/* Beyond the length that it was trained on a model writes rubbish: how many tokens it can add. */
static int64_t tokens_left(int64_t seq_len, const char *prompt)
{
    int64_t left = seq_len - (int64_t)strlen(prompt);
    return left < TOKENS_MIN ? TOKENS_MIN : left > TOKENS_MAX ? TOKENS_MAX : left;
}

/* Everything but --model goes to tandem-tool as it is, which speaks as the name it is called by. */
static int run(struct cli *cli, int argc, char **argv)
{
    char *out[MAX_ARGS + 6] = {(char[]){"tandem"}, (char[]){"generate"}, (char[]){"--model"}};
    int num = 4;
    const char *model = NULL, *prompt = NULL;
    bool length_given = false;
    if (argc > MAX_ARGS) {
        return cli_usage(argv[0], "more than %d arguments", MAX_ARGS);
    }
    for (int i = 1; i < argc; i++) {
        const char *text = value_of(argv, argc, i, "--prompt");
        prompt = text ? text : prompt;
        length_given = length_given || value_of(argv, argc, i, "--max-tokens");
        if (strcmp(argv[i], "--model") == 0 && i + 1 < argc) {
            model = argv[++i];
        } else if (strncmp(argv[i], "--model=", 8) == 0) {
            model = argv[i] + 8;
        } else if (i == 1 && argv[i][0] != '-') {
            model = argv[i];
        } else if (strcmp(argv[i], "--prompt") == 0 && i + 1 < argc && !argv[i + 1][0]) {
            return cli_usage(argv[0], "--prompt: an empty text can't be continued");
        } else {
            out[num++] = argv[i];
        }
    }
    if (!model) {
        return cli_usage(argv[0], "which model? Give --model FOLDER, JOB or JOB@STEP");
    }
    if (!prompt) {
        return cli_usage(argv[0], "which text is it to continue? Give --prompt TEXT");
    }
    char dir[PATH_MAX], length[32], length_flag[] = "--max-tokens";
    int64_t seq_len = 0;
    struct error err;
    if (is_folder(model)) {
        snprintf(dir, sizeof dir, "%s", model);
    } else if (job_dir(cli, model, dir, &seq_len, &err)) {
        return cli_fail(&err);
    }
    if (seq_len > 0 && !length_given) {
        snprintf(length, sizeof length, "%lld", (long long)tokens_left(seq_len, prompt));
        out[num++] = length_flag;
        out[num++] = length;
    }
    out[3] = dir;
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
            "comes back, up to the eos_token_id of its config.\n\n"
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
