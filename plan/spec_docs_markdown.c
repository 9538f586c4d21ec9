/* docs/job-spec.md. `tandem explain --markdown` prints it; a test holds the file to it. */
#include "plan/spec_docs.h"

#include <stdlib.h>
#include <string.h>

static const char head[] =
    "# Job file reference\n"
    "\n"
    "<!-- Made by `tandem explain --markdown`; a test compares. Change proto/tandem/v1/jobs.proto\n"
    "     or plan/spec_rules.c, then run it again. -->\n"
    "\n"
    "A job file is YAML (or JSON, which is YAML) and describes one run: the model, the data, how "
    "to\n"
    "train, and on how many devices. `tandem explain FIELD` prints what stands here for one "
    "field.\n"
    "\n"
    "The least that works:\n"
    "\n"
    "```yaml\n"
    "name: first\n"
    "model: {path: models/tiny-llama}\n"
    "data: {train: [{path: corpus.txt, format: text}]}\n"
    "training: {steps: 100, seq_len: 128, global_batch_size: 8, lr_schedule: {warmup_steps: 10}}\n"
    "```\n"
    "\n"
    "## How it is read\n"
    "\n"
    "- Relative paths count from the job file's folder. The CLI makes them absolute; the server\n"
    "  refuses relative ones.\n"
    "- An unknown key, a wrong type, a number out of range, a key that stands twice: an error "
    "with\n"
    "  file, line, column and the nearest name. Nothing is ignored.\n"
    "- A whole number may be written as `1e6`. Numbers are decimal: no hex, no underscores, no\n"
    "  leading zeros, no `.inf`, no `.nan`.\n"
    "- A key with nothing behind it, or with `null`, is an absent field: it gets its default.\n"
    "- Anchors, aliases, tags and several documents in a file are refused.\n"
    "- `tandem submit FILE --set training.steps=500 --set data.train.0.path=/data/x.bin` changes\n"
    "  single fields; lists are counted from 0.\n"
    "- The server fills in every default and stores that: `tandem show JOB -o yaml` prints the\n"
    "  job as it is run.\n"
    "- What is marked *not built* is refused by name when a file sets it; its default may be\n"
    "  written out.\n"
    "\n"
    "## Rules between fields\n"
    "\n"
    "- `model`: exactly one of `path` and `config`.\n"
    "- `training`: exactly one of `steps`, `tokens` and `epochs`.\n"
    "- `training.global_batch_size` is a multiple of `parallel.data` x "
    "`training.micro_batch_size`;\n"
    "  the quotient is the number of micro-batches that each rank accumulates in a step.\n"
    "- `resources.devices`, where it is given, is the product of `parallel.data`, `tensor`,\n"
    "  `pipeline` and `context`.\n"
    "- `training.precision: fp64` runs on backend `ref` alone (`auto` takes it). `bf16` runs on "
    "all "
    "backends; of GPUs it wants\n"
    "  compute capability 8.0 (A100) or newer.\n"
    "- `resources.backend: auto` takes GPUs where the allowed nodes have enough of them, else CPU "
    "devices, and\n"
    "  `training.precision: auto` follows from that; the stored job has what was chosen.\n"
    "- The learning rate of step n = 1, 2, ...: up to `warmup_steps` it is lr x n / warmup_steps.\n"
    "  Then `cosine` and `linear` go from lr to lr x `min_lr_ratio` at step `decay_steps`\n"
    "  (0: the last step); `wsd` stays at lr and falls linearly to that floor over the last\n"
    "  `decay_steps` steps (0: a tenth of all); `constant` stays at lr. After the end the floor\n"
    "  holds.\n"
    "- `sgd` has no momentum: w -= lr x (gradient + weight_decay x w). Decay touches tensors of\n"
    "  two or more dimensions only.\n";

/* A cell: what would end it is escaped. */
static void put_cell(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|') {
            buf_putc(out, '\\');
        }
        buf_putc(out, *text);
    }
}

static void put_row(struct buf *out, const struct spec_doc *doc)
{
    const char *name = strrchr(doc->path, '.');
    buf_printf(out, "| `%s` | %s | ", name ? name + 1 : doc->path, doc->type);
    if (doc->rule->required) {
        buf_puts(out, "required");
    } else if (doc->fallback[0]) {
        buf_printf(out, "`%s`", doc->fallback);
    }
    buf_puts(out, " | ");
    put_cell(out, doc->values);
    buf_puts(out, " | ");
    put_cell(out, doc->text);
    buf_puts(out, " |\n");
}

/* ---- the whole file ------------------------------------------------------------------------- */

/* What stands in the whole file for fields without a default. Those not here are comments. */
static const struct {
    const char *path, *value;
} samples[] = {
    {"name", "my-run"},
    {"model.path", "models/tiny-llama"},
    {"data.train.path", "corpus.txt"},
    {"data.train.format", "text"},
    {"training.steps", "1000"},
    {"training.seq_len", "1024"},
    {"training.global_batch_size", "64"},
};

static const char *sample(const struct spec_doc *doc)
{
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        if (strcmp(samples[i].path, doc->path) == 0) {
            return samples[i].value;
        }
    }
    return doc->fallback[0] ? doc->fallback : NULL;
}

#define COMMENT_COLUMN 40

static void put_line(struct buf *out, const struct spec_doc *doc, int indent, bool dash)
{
    const char *name = strrchr(doc->path, '.'), *value = sample(doc);
    size_t start = out->len;
    bool open = doc->section && !doc->unbuilt;
    buf_printf(out, "%*s%s%s%s:%s%s", indent, "", dash ? "- " : "", open || value ? "" : "# ",
               name ? name + 1 : doc->path, open || !value ? "" : " ", open || !value ? "" : value);
    int used = (int)(out->len - start);
    if (doc->text[0]) {
        buf_printf(out, "%*s# %s", used < COMMENT_COLUMN ? COMMENT_COLUMN - used : 1, "",
                   doc->text);
    }
    buf_putc(out, '\n');
}

/* Fields of sections that aren't built at all are left out; the sections stand as comments. */
static void put_whole_file(struct buf *out, const struct spec_doc *all, size_t num)
{
    int hidden = -1; /* depth of the section that is left out */
    int indents[16] = {0};
    bool dash = false;
    for (size_t i = 0; i < num; i++) {
        const struct spec_doc *doc = &all[i];
        if (hidden >= 0 && doc->depth > hidden) {
            continue;
        }
        hidden = doc->section && doc->unbuilt ? doc->depth : -1;
        bool list = doc->section && doc->field->label == PROTOBUF_C_LABEL_REPEATED;
        put_line(out, doc, indents[doc->depth] - 2 * dash, dash);
        dash = list && hidden < 0;
        indents[doc->depth + 1] = indents[doc->depth] + (dash ? 4 : 2);
    }
}

/* ---- all of it ------------------------------------------------------------------------------ */

/* The fields at one level below a section, and the headings of sections further down. */
static void put_section(struct buf *out, const struct spec_doc *all, size_t num, size_t first,
                        int depth)
{
    buf_puts(out, "\n| field | type | default | may be | meaning |\n"
                  "| --- | --- | --- | --- | --- |\n");
    for (size_t i = first; i < num && all[i].depth >= depth; i++) {
        if (all[i].depth == depth) {
            put_row(out, &all[i]);
        }
    }
}

void spec_docs_markdown(struct buf *out)
{
    struct spec_doc *all;
    size_t num = spec_docs_all(&all);
    buf_puts(out, head);
    buf_puts(out, "\n## The top of the file\n");
    put_section(out, all, num, 0, 0);
    for (size_t i = 0; i < num; i++) {
        if (all[i].section) {
            buf_printf(out, "\n## %s\n", all[i].path);
            if (all[i].text[0]) {
                buf_printf(out, "\n%s\n", all[i].text);
            }
            put_section(out, all, num, i + 1, all[i].depth + 1);
        }
    }
    buf_puts(out,
             "\n## The whole file\n\nEvery field with its default; what has none is a sample or "
             "a comment.\n\n```yaml\n");
    put_whole_file(out, all, num);
    buf_puts(out, "```\n");
    free(all);
}
