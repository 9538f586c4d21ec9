#include <limits.h>
#include <string.h>

#include "base/fs.h"
#include "clients/cli/args.h"
#include "clients/cli/local_cluster.h"
#include "clients/cli/verbs.h"

/* %d: devices, two where this host has two cores. */
static const char starter[] =
    "# A training job. `tandem explain FIELD` tells what a field means; what is not here has its\n"
    "# default. Relative paths count from this file.\n"
    "name: my-run\n"
    "model:\n"
    "  config: config.json        # random weights; `path: FOLDER` instead starts from a saved "
    "model\n"
    "data:\n"
    "  train:\n"
    "    - {path: corpus.txt, format: text}    # your text\n"
    "training:\n"
    "  steps: 1000\n"
    "  seq_len: 256\n"
    "  global_batch_size: 16      # samples a step, over all devices\n"
    "  micro_batch_size: 4        # samples that one device computes at once\n"
    "  optimizer: {lr: 1.0e-3}\n"
    "  lr_schedule: {warmup_steps: 100, decay: cosine}\n"
    "parallel:\n"
    "  data: %d                    # devices that share the batch\n"
    "checkpoint:\n"
    "  interval: 200              # steps; a restart loses at most these\n";

/* The shape of a small Llama, in Hugging Face's form. */
static const char config[] = "{\n"
                             "  \"architectures\": [\"LlamaForCausalLM\"],\n"
                             "  \"model_type\": \"llama\",\n"
                             "  \"vocab_size\": 256,\n"
                             "  \"hidden_size\": 128,\n"
                             "  \"intermediate_size\": 384,\n"
                             "  \"num_hidden_layers\": 6,\n"
                             "  \"num_attention_heads\": 4,\n"
                             "  \"num_key_value_heads\": 2,\n"
                             "  \"max_position_embeddings\": 512\n"
                             "}\n";

/* Where the job file looks for it; *made: it was not there. */
static int write_config(const char *file, bool *made, struct error *err)
{
    char path[PATH_MAX];
    const char *slash = strrchr(file, '/');
    int len = slash ? (int)(slash - file) + 1 : 0;
    if (snprintf(path, sizeof path, "%.*sconfig.json", len, file) >= (int)sizeof path) {
        return error_set(err, ERR_INVALID_ARGUMENT, "%s: the path is too long", file);
    }
    *made = !fs_exists(path);
    return *made ? fs_write_atomic(path, config, strlen(config), 0644, err) : 0;
}

static int run(struct cli *cli, int argc, char **argv)
{
    const struct arg_flag flags[] = {{0}};
    const char *file = "job.yaml";
    char text[sizeof starter];
    struct error err;
    (void)cli;
    if (args_parse(flags, argc, argv, &file, 1) < 0) {
        return EXIT_USAGE;
    }
    snprintf(text, sizeof text, starter, local_num_cores() < 2 ? 1 : 2);
    if (strcmp(file, "-") == 0) {
        fputs(text, stdout);
        return EXIT_DONE;
    }
    if (fs_exists(file)) {
        error_set(&err, ERR_ALREADY_EXISTS, "%s is there already; it was left alone", file);
        return cli_fail(&err);
    }
    bool with_config;
    if (write_config(file, &with_config, &err) ||
        fs_write_atomic(file, text, strlen(text), 0644, &err)) {
        return cli_fail(&err);
    }
    printf("wrote %s%s; next: name your text in it, then `tandem submit %s --dry-run`\n", file,
           with_config ? " and config.json, a Llama of 1.25M parameters" : "", file);
    return EXIT_DONE;
}

const struct verb verb_init = {
    .name = "init",
    .args = "[FILE]",
    .help = "write a job file to start from",
    .text = "FILE is job.yaml unless given; `-` prints it. A file that exists is left alone.\n"
            "A config.json, the shape of a small Llama, is put beside it if there is none.\n\n"
            "  tandem init && $EDITOR job.yaml && tandem submit job.yaml --dry-run\n",
    .run = run,
    .text_only = true,
};
