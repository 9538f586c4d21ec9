#include <string.h>

#include "base/fs.h"
#include "clients/cli/args.h"
#include "clients/cli/verbs.h"

static const char starter[] =
    "# A training job. `tandem explain FIELD` tells what a field means; what is not here has its\n"
    "# default. Relative paths count from this file.\n"
    "name: my-run\n"
    "model:\n"
    "  config: config.json        # random weights; `path: FOLDER` starts from a saved model\n"
    "data:\n"
    "  train:\n"
    "    - {path: corpus.txt, format: text}\n"
    "training:\n"
    "  steps: 1000\n"
    "  seq_len: 256\n"
    "  global_batch_size: 16      # samples a step, over all devices\n"
    "  micro_batch_size: 4        # samples that one device computes at once\n"
    "  optimizer: {lr: 1.0e-3}\n"
    "  lr_schedule: {warmup_steps: 100, decay: cosine}\n"
    "parallel:\n"
    "  data: 2                    # devices that share the batch\n"
    "checkpoint:\n"
    "  interval: 200              # steps; a restart loses at most these\n";

static int run(struct cli *cli, int argc, char **argv)
{
    const struct arg_flag flags[] = {{0}};
    const char *file = "job.yaml";
    struct error err;
    (void)cli;
    if (args_parse(flags, argc, argv, &file, 1) < 0) {
        return EXIT_USAGE;
    }
    if (strcmp(file, "-") == 0) {
        fputs(starter, stdout);
        return EXIT_DONE;
    }
    if (fs_exists(file)) {
        error_set(&err, ERR_ALREADY_EXISTS, "%s is there already; it was left alone", file);
        return cli_fail(&err);
    }
    if (fs_write_atomic(file, starter, strlen(starter), 0644, &err)) {
        return cli_fail(&err);
    }
    printf("wrote %s; next: edit it, then `tandem submit %s --dry-run`\n", file, file);
    return EXIT_DONE;
}

const struct verb verb_init = {
    .name = "init",
    .args = "[FILE]",
    .help = "write a job file to start from",
    .text = "FILE is job.yaml unless given; `-` prints it. A file that exists is left alone.\n\n"
            "  tandem init && $EDITOR job.yaml && tandem submit job.yaml --dry-run\n",
    .run = run,
};
