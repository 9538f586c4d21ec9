"""docs.py OUT.c FILE.proto ...: the comment above each message and field as a C table, for
`tandem explain` and the job-spec reference."""
import re
import sys


def entries(path):
    comment, message = [], None
    for raw in open(path):
        line = raw.strip()
        if line.startswith("//"):
            comment.append(line[2:].strip())
            continue
        opened = re.match(r"message (\w+) \{", line)
        field = re.match(r"(?:optional |repeated )?[\w.]+ (\w+) = \d+", line)
        if opened:
            message = opened.group(1)
            yield message, comment
        elif line == "}":
            message = None
        elif field and message and not line.startswith("JOB_"):
            yield f"{message}.{field.group(1)}", comment
        comment = []


def quote(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


out, *files = sys.argv[1:]
with open(out, "w") as f:
    f.write("struct docs_entry { const char *name, *text; };\n")
    f.write("extern const struct docs_entry docs_table[];\nconst struct docs_entry docs_table[] = {\n")
    for path in files:
        for name, comment in entries(path):
            if comment:
                f.write("{%s, %s},\n" % (quote(name), quote(" ".join(comment))))
    f.write("{0, 0}};\n")
