#!/usr/bin/env python3
"""paths.py ROOT: what the Markdown files name is there: the targets of links, and in `code` paths
that begin with one of the tree's folders and bare names of source files. A name may have * and
{a,b}, and may leave its ending out. Prints what is gone, exits 1 on any."""
import fnmatch
import os
import pathlib
import re
import sys

# A build makes it.
MADE = {"proto/names.h"}
SOURCES = r"\.(c|h|cc|cu|cuh|py|cmake|proto|patch|sql)$"


def tree(root):
    """All files below root, without builds and what git keeps."""
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f != "build" and not f.startswith(".")]
        for name in files:
            yield pathlib.Path(folder, name).relative_to(root).as_posix()


def spelled_out(name):
    braces = re.match(r"(.*)\{([^}]*)\}(.*)", name)
    return [braces[1] + x + braces[3] for x in braces[2].split(",")] if braces else [name]


def is_there(name, files, folders):
    name = name.rstrip("/")
    if name in files or name in folders or name in MADE:
        return True
    return any(fnmatch.fnmatch(f, pattern) for pattern in (name, name + ".*") for f in files)


def words_of(text):
    """(line, path from the root or bare name) in `code`."""
    for number, line in enumerate(text.splitlines(), 1):
        for span in re.findall(r"`([^`]+)`", line):
            for word in span.split():
                word = word.strip(",;:.()")
                if re.fullmatch(r"[\w.\-*{},/]+", word) and not word.startswith("/"):
                    yield number, word


def links_of(text):
    for number, line in enumerate(text.splitlines(), 1):
        for target in re.findall(r"\]\(([^)#\s]+)", line):
            if not re.match(r"\w+:", target):
                yield number, target


def main():
    root = pathlib.Path(sys.argv[1])
    files = set(tree(root))
    folders = {p.as_posix() for f in files for p in pathlib.PurePosixPath(f).parents}
    tops = {f.split("/")[0] for f in files if "/" in f}
    bare = {f.split("/")[-1] for f in files}
    gone, num = [], 0
    for doc in sorted(f for f in files if f.endswith(".md")):
        text = (root / doc).read_text()
        for number, target in links_of(text):
            num += 1
            path = os.path.normpath(os.path.join(os.path.dirname(doc), target))
            if not is_there(path, files, folders):
                gone.append(f"{doc}:{number}: {target}")
        for number, word in words_of(text):
            known = files if "/" in word and word.split("/")[0] in tops else bare
            if known is bare and ("/" in word or not re.search(SOURCES, word)):
                continue
            num += 1
            gone += [f"{doc}:{number}: {name}" for name in spelled_out(word)
                     if not is_there(name, known, folders)]
    for fault in gone:
        print(f"{fault} is gone")
    if num < 20:
        print(f"only {num} names found below {root}")
        gone.append("")
    print(f"{num} names, {len(gone)} gone")
    return 1 if gone else 0


sys.exit(main())
