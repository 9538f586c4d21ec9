"""embed_sql.py OUT.c 0001_a.sql ...: the migrations in the order of their names, as
`const struct migration { const char *name, *sql; } migrations[]`, ended by NULL."""
import os
import sys

out, *files = sys.argv[1:]
with open(out, "w") as f:
    f.write("struct migration { const char *name, *sql; };\n")
    f.write("extern const struct migration migrations[];\nconst struct migration migrations[] = {\n")
    for path in sorted(files, key=os.path.basename):
        f.write('{"%s",\n' % os.path.basename(path))
        for line in open(path):
            text = line.rstrip("\n").replace("\\", "\\\\").replace('"', '\\"')
            f.write('"%s\\n"\n' % text)
        f.write("},\n")
    f.write("{0, 0}};\n")
