#!/usr/bin/env python3
"""kernels_test.py NVCC SOURCE_DIR [--built OBJECTS] [--table]: what nvcc makes of every kernel, for
sm_80 and sm_90. OBJECTS: the folder where the plug-in's build left that; without it nvcc runs here.

What the simulator runs must be what a GPU would get: each kernel compiles without a warning, and has
neither spills nor local memory; where its name says that it goes by 16 bytes it does; and those that a
step spends its time in keep their budgets (budgets.py). docs/performance.md has what nvcc
13.0.88 makes of these: its figures are compared where that is at hand, for both architectures. --table
prints them as they stand there."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import budgets
import cubin

ARCHS = (80, 90)
# By 16 bytes on one side alone: small results, or numbers of another size.
ONE_SIDED = ("attention", "column_sum", "vocabulary_parts", "rmsnorm_bwd_kernel", "layernorm_bwd_kernel")


def probe_errors(kernels):
    """The reader itself: each probe has what it was written to have, and nothing else."""
    want = {"probe_32": {"LDG.32", "STG.32"}, "probe_64": {"LDG.64", "STG.64"},
            "probe_128": {"LDG.128", "STG.128"}, "probe_double": {"LDG.64", "DFMA", "STG.64"},
            "probe_local": {"LDG.32", "STG.32", "LDL", "STL"},
            "probe_tensor": {"LDGSTS.128", "LDSM", "HMMA", "STG.32"}}
    for k in kernels:
        found = {re.sub(r"^(LDL|STL)\..*", r"\1", c) for c in k.counts if not c.startswith(("LDS.", "STS."))}
        if found != want.pop(k.name, set()):
            yield f"sm_{k.arch} {k.name}: read as {sorted(k.counts)}"
        if (k.stack > 0) != (k.name == "probe_local"):
            yield f"sm_{k.arch} {k.name}: {k.stack} bytes of stack"
        if k.name == "probe_128" and k.threads != 96:
            yield f"sm_{k.arch} {k.name}: at most {k.threads} threads, not 96"
    yield from (f"there is no {name}" for name in want)


def is_wide(name):
    """Does a template argument say 16 bytes at a time? <__nv_bfloat16, 8>, <4, add_each<float> >."""
    return bool(re.search(r"<__nv_bfloat16, (__nv_bfloat16, )?8>|<float, (float, )?4>|<8, .*bfloat16|<4, .*float", name)
                and not re.search(r"simt_|held_", name))


def rule_errors(source, k):
    if k.spilled or k.stack:
        yield f"{k.spilled} bytes spilled, {k.stack} of local memory"
    if any(c.startswith(("LDL", "STL")) for c in k.counts):
        yield "goes to local memory"
    if is_wide(k.name):
        sides = [s for s in ("LDG.128", "STG.128") if not k.counts[s]]
        one_sided = source in ONE_SIDED or k.name.split("<")[0] in ONE_SIDED
        if len(sides) > (1 if one_sided else 0):
            yield f"has no {' and no '.join(sides)}"


def budget_of(source, name):
    return next((b for b in budgets.BUDGETS if b[0] == source and re.search(b[1], name)), None)


def dynamic_bytes(budget, name):
    return budget[5](name) if callable(budget[5]) else budget[5]


def warps(budget, k):
    return cubin.blocks_per_sm(k, dynamic_bytes(budget, k.name)) * -(-k.threads // 32)


def budget_errors(budget, k):
    least = budget[2] if k.arch == 80 else budget[3]
    if warps(budget, k) < least:
        yield (f"{warps(budget, k)} warps on a multiprocessor, not {least}: {k.registers} registers, "
               f"{k.shared + dynamic_bytes(budget, k.name)} bytes of shared memory")
    for need in budget[4]:
        if not k.counts[need]:
            yield f"has no {need}"


def row(budget, pair):
    def both(value):
        values = [str(value(k)) for k in pair]
        return values[0] if len(set(values)) == 1 else " / ".join(values)
    counts = pair[-1].counts
    name = re.sub(r"__nv_bfloat16", "bf16", pair[0].name).replace("> >", ">>")
    sass = ", ".join(f"{counts[n]} {n}" for n in ("HMMA", "LDSM", "LDGSTS.128", "LDG.128", "STG.128") if counts[n])
    shared = both(lambda k: k.shared + dynamic_bytes(budget, k.name))
    return f"| `{name}` | {both(lambda k: k.registers)} | {shared} | {both(lambda k: warps(budget, k))} | {sass} |"


def table(rows):
    """Those that aren't attention's, which have a table of their own."""
    return [row(pairs[0][0], [k for _, k in pairs]) for pairs in rows.values() if not attention_of(pairs)]


def attention_of(pairs):
    found = re.match(r"attention_(fwd|dq|dkv)_kernel<", pairs[-1][1].name)
    return found and found[1]


def attention_row(title, all_pairs):
    """Of sm_90, by heads: registers, shared memory, blocks and warps."""
    each = sorted((int(budgets.shape(k.name)[0]), budget, k) for (_, _), (budget, k) in all_pairs)

    def listed(values):
        return ", ".join(map(str, values))
    kib = [(k.shared + dynamic_bytes(b, k.name)) // 1024 for _, b, k in each]
    blocks = [cubin.blocks_per_sm(k, dynamic_bytes(b, k.name)) for _, b, k in each]
    in_warps = [warps(b, k) for _, b, k in each]
    held = (f"{blocks[0]} blocks, {in_warps[0]} warps" if len(set(blocks)) == 1 else
            f"{listed(blocks)} blocks; {listed(in_warps)} warps")
    return (f"| {title} | {listed(h for h, _, _ in each)} | {listed(k.registers for _, _, k in each)} | "
            f"{listed(kib)} KiB | {held} |")


def words_of_docs(nvcc, rows):
    """What docs/performance.md has to say, where this is the nvcc that it speaks of."""
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    whole = {at: pairs for at, pairs in rows.items() if [k.arch for _, k in pairs] == list(ARCHS)}
    if "V13.0.88" not in said or len(whole) < len(rows):
        return []
    return table(whole) + [
        attention_row(title, [pairs for pairs in whole.values() if attention_of(pairs) == kind])
        for title, kind in (("forward", "fwd"), ("dq", "dq"), ("dk, dv", "dkv"))]


def jobs_of_today(sources, both):
    """Each file for one architecture, the other one the next day (NVCC_DAY=n: that of day n); for both
    with TANDEM_FULL=1."""
    both = both or os.environ.get("TANDEM_FULL", "0") not in ("", "0")
    day = int(os.environ.get("NVCC_DAY", time.time() // 86400))
    return [(source, arch) for i, source in enumerate(sources) for j, arch in enumerate(ARCHS)
            if both or (i + j + day) % 2 == 0]


def take(nvcc, root, objects, sources, both):
    """-> ([(source, arch)], what nvcc made of each). The probes come first, and always for both."""
    built = {s: cubin.built_kernels(objects / f"{s.name}.o") for s in sources
             if objects and (objects / f"{s.name}.o").exists()}
    built = {s: kernels for s, kernels in built.items() if all(kernels.get(arch) for arch in ARCHS)}
    probes = root / "tests/cuda/probes.cu"
    jobs = [(probes, arch) for arch in ARCHS] + jobs_of_today([s for s in sources if s not in built], both)
    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda j: cubin.compile_kernels(nvcc, root, *j, folder), jobs))
    for source, kernels in built.items():
        jobs += [(source, arch) for arch in ARCHS]
        results += [kernels[arch] for arch in ARCHS]
    return jobs, results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("nvcc")
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--built", type=pathlib.Path)
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    root = args.root
    sources = sorted((root / "kernels/cuda").glob("*.cu")) + [root / "tests/cusim/right.cu"]
    jobs, results = take(args.nvcc, root, args.built, sources, args.table)
    errors, met, rows, num = [], set(), {}, 0
    for (source, arch), kernels in zip(jobs, results):
        if source.stem == "probes":
            errors += probe_errors(kernels)
            continue
        if not kernels:
            errors.append(f"{source.name} sm_{arch}: no kernels")
        num += len(kernels)
        for k in kernels:
            budget = budget_of(source.stem, k.name)
            words = list(rule_errors(source.stem, k))
            if budget:
                met.add((budget, arch))
                words += budget_errors(budget, k)
                rows.setdefault((source.stem, k.name), []).append((budget, k))
            errors += [f"{source.name} sm_{arch} {k.name}: {w}" for w in words]
    left_out = {(s.stem, a) for s in sources for a in ARCHS} - {(s.stem, a) for s, a in jobs}
    errors += [f"budget {b[0]} {b[1]}: no such kernel for sm_{a}"
               for b in budgets.BUDGETS for a in ARCHS if (b, a) not in met and (b[0], a) not in left_out]
    docs = (root / "docs/performance.md").read_text()
    errors += [f"docs/performance.md lacks: {words}" for words in words_of_docs(args.nvcc, rows) if words not in docs]
    if args.table:
        print("| kernel | registers | shared bytes | warps a multiprocessor | instructions |\n"
              "| --- | --- | --- | --- | --- |")
        print("\n".join(table(rows)))
    print(f"{num} kernels of {len(sources)} files, {len(jobs)} results of nvcc, {len(rows)} with a budget: "
          f"{len(errors)} errors")
    print("\n".join(errors))
    sys.exit(1 if errors else 0)


if __name__ == "__main__":
    main()
