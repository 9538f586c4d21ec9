#!/usr/bin/env python3
"""flags.py TANDEM ROOT: every verb and long flag of the command line is told in docs/*.md. The verbs
and their flags are those that `TANDEM --help` and `TANDEM VERB --help` tell, verbs below verbs too; a
flag that a verb takes (the tables for args_parse in clients/cli) has to be in its help.

A section tells of a verb whose name stands in its headings or behind `tandem`; a flag is told where
such a section of its verb has it. So --tenant of one verb doesn't answer for that of another. Prints
what isn't told, exits 1 on any."""
import pathlib
import re
import subprocess
import sys

FLAG = r"(?<![\w-])--[a-z][a-z-]*[a-z]"
# In C: a flag of a table, `{"all", 'a', ARG_BOOL` or `.name = "all", .kind`, and what help prints.
TAKEN = r'(?:\{|\.name = |\? )"([a-z][a-z-]*)"(?=(?: : NULL)?, (?:0, |\'.\', |\.kind = )ARG_)'
LITERAL = r'"(?:[^"\\]|\\.)*"'
HELP = rf"\.(?:args|text) =\s*((?:{LITERAL}\s*)+)"


def help_of(program, words):
    done = subprocess.run([program, *words, "--help"], capture_output=True, text=True, timeout=60)
    if done.returncode or not done.stdout.startswith(("usage:", "tandem:")):
        sys.exit(f"{' '.join([program, *words])} --help: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def flags_of(text):
    """Without what is said of other verbs: examples and `tandem ...`."""
    text = re.sub(r"`[^`]*\btandem\b[^`]*`", "", text)
    return set(re.findall(FLAG, re.sub(r"(?m)^  (\S.*)?\btandem .*$", "", text)))


def verbs_of(program, words=()):
    """(words, flags) of each verb, those above others too."""
    text = help_of(program, words)
    yield words, flags_of(text)
    teaches = text.find("VERB --help` teaches each of them")
    for name in re.findall(r"(?m)^  ([a-z-]+)  +\S", text[:max(teaches, 0)]):
        yield from verbs_of(program, (*words, name))


def sections_of(text):
    """(headings above it, text) of what stands between two headings."""
    above, fenced, lines = [], False, []
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        heading = None if fenced else re.match(r"(#+) (.*)", line)
        if heading:
            yield " / ".join(above), "\n".join(lines)
            above = above[:len(heading[1]) - 1] + [heading[2]]
            lines = []
        lines.append(line)
    yield " / ".join(above), "\n".join(lines)


def tells_of(words, headings, text):
    """Of the tool itself (no words) every section does."""
    if not words:
        return True
    name = r"\s+".join(map(re.escape, words))
    return bool(re.search(rf"\btandem\s+{name}\b(?!-)", text)
                or re.search(rf"(?<![\w-]){name}(?![\w-])", headings))


def hidden_flags(root):
    """(file, flag) that a verb takes and its help doesn't tell."""
    for source in sorted(pathlib.Path(root, "clients/cli").glob("*.c")):
        text = source.read_text()
        helps = "".join(part[1:-1] for literals in re.findall(HELP, text)
                        for part in re.findall(LITERAL, literals) + ['"\\n"'])
        told = flags_of(helps.replace("\\n", "\n"))
        for name in sorted(set(re.findall(TAKEN, text))):
            if f"--{name}" not in told:
                yield source.name, f"--{name}"


def main():
    program, root = sys.argv[1:]
    sections = [s for doc in sorted(pathlib.Path(root, "docs").glob("*.md"))
                for s in sections_of(doc.read_text())]
    faults, num = [], 0
    for words, flags in verbs_of(program):
        verb = " ".join(("tandem", *words))
        told = [text for headings, text in sections if tells_of(words, headings, text)]
        num += 1 + len(flags)
        if not told:
            faults.append(f"{verb} isn't told in docs/*.md")
        faults += [f"{verb} {flag} isn't told in docs/*.md where the verb is" for flag in sorted(flags)
                   if told and not any(re.search(rf"{flag}(?![\w-])", text) for text in told)]
    faults += [f"clients/cli/{name}: {flag} is taken and not told by --help"
               for name, flag in hidden_flags(root)]
    if num < 100:
        faults.append(f"only {num} verbs and flags found by {program} --help")
    for fault in faults:
        print(fault)
    print(f"{num} verbs and flags, {len(faults)} faults")
    return 1 if faults else 0


sys.exit(main())
