#!/usr/bin/env python3
"""layers.py ROOT: holds the layers. An include may only point downward:

    base <- proto <- model <- plan;  base <- kernels
    {base, proto, model, plan, kernels} <- runtime
    {base, proto, model, plan} <- server, clients

and the headers of foreign libraries stay where they belong. Prints each breach, exits 1 on any."""
import pathlib
import re
import sys

MAY = {
    "base": {"base"},
    "proto": {"base", "proto"},
    "model": {"base", "proto", "model"},
    "plan": {"base", "proto", "model", "plan"},
    "kernels": {"base", "kernels"},
    "runtime": {"base", "proto", "model", "plan", "kernels", "runtime"},
    "server": {"base", "proto", "model", "plan", "server"},
    "clients": {"base", "proto", "model", "plan", "clients"},
}
SUFFIXES = {".c", ".h", ".cc", ".cu", ".cuh"}
# header pattern -> the only places that may include it
FOREIGN = [
    (r"sqlite3\.h", ["server/store/"]),
    (r"grpc/.*", ["server/rpc/", "proto/rpc_client.c"]),
    (r"(cuda|cublas|nccl).*\.h", ["kernels/cuda/", "kernels/cusim/", "runtime/comm/comm_nccl"]),
    (r"(cblas|openblas_config|dnnl).*\.h", ["kernels/cpu/"]),
    (r"yaml\.h", ["proto/"]),
]


def main():
    root = pathlib.Path(sys.argv[1])
    faults = []
    num_files = 0
    for box, allowed in MAY.items():
        for path in sorted(p for p in (root / box).rglob("*") if p.suffix in SUFFIXES):
            num_files += 1
            name = path.relative_to(root).as_posix()
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
                match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
                if not match:
                    continue
                kind, header = match.groups()
                top = header.split("/")[0]
                if kind == '"' and top not in allowed:
                    faults.append(f'{name}:{number}: {box}/ may not include "{header}"')
                for pattern, places in FOREIGN:
                    if re.fullmatch(pattern, header) and not any(name.startswith(p) for p in places):
                        faults.append(f"{name}:{number}: {header} belongs to {', '.join(places)}")
    for fault in faults:
        print(fault)
    if num_files < 20:
        print(f"only {num_files} files found below {root}")
        faults.append("")
    print(f"{num_files} files, {len(faults)} breaches")
    return 1 if faults else 0


sys.exit(main())
