"""Reads a cubin: what each kernel takes of a multiprocessor, and which instructions it consists of.

NVIDIA's disassembler isn't everywhere where its compiler is. What is asked here is little: an
instruction of sm_70 and later has 16 bytes, its operation in the low 12 bits, and the width of a
memory access in bits 73 to 75. probes.cu holds one kernel for each thing that is told apart, so that
a compiler that encodes it otherwise fails the test rather than passes it."""
import collections
import re
import struct
import subprocess

WIDTHS = {0: 8, 1: 8, 2: 16, 3: 16, 4: 32, 5: 64, 6: 128}
# Operation, without the bit that says whether an address has a uniform part.
ACCESSES = {0x381: "LDG", 0x981: "LDG", 0x386: "STG", 0x986: "STG", 0x383: "LDL", 0x983: "LDL",
            0x387: "STL", 0x987: "STL", 0x388: "STS", 0x988: "STS", 0x384: "LDS", 0x984: "LDS",
            0xfae: "LDGSTS"}
OPERATIONS = {0x23c: "HMMA", 0x83b: "LDSM", 0x22b: "DFMA", 0x42b: "DFMA", 0x62b: "DFMA",
              0x82b: "DFMA", 0x228: "DMUL", 0x428: "DMUL", 0x828: "DMUL", 0x229: "DADD",
              0x429: "DADD", 0x829: "DADD"}
EIATTR_MAX_THREADS = 0x05
EIFMT_SVAL = 0x04


def sections(data):
    at, = struct.unpack_from("<Q", data, 0x28)
    size, num, names = struct.unpack_from("<HHH", data, 0x3a)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(num)]
    base = headers[names][4]
    for header in headers:
        start = base + header[0]
        yield data[start:data.index(b"\0", start)].decode(), data[header[4]:header[4] + header[5]]


def instructions(code):
    counts = collections.Counter()
    for low, high in struct.iter_unpack("<QQ", code):
        operation = low & 0xfff
        if operation in ACCESSES:
            counts[f"{ACCESSES[operation]}.{WIDTHS.get(high >> 9 & 7, 0)}"] += 1
        elif operation in OPERATIONS:
            counts[OPERATIONS[operation]] += 1
    return counts


def max_threads(info):
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != EIFMT_SVAL:
            continue
        if attribute == EIATTR_MAX_THREADS:
            x, y, z = struct.unpack_from("<III", info, at)
            return x * y * z
        at += size
    return 1024


def usage(report):
    """ptxas -v: {mangled name: (registers, shared bytes, spilled bytes, stack bytes)}."""
    out, name, stack, spilled = {}, None, 0, 0
    for line in report.splitlines():
        if found := re.search(r"Compiling entry function '(\S+)'", line):
            name, stack, spilled = found[1], 0, 0
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)", line):
            stack, spilled = int(found[1]), int(found[2]) + int(found[3])
        elif name and (found := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            out[name] = (int(found[1]), int(shared[1]) if shared else 0, spilled, stack)
            name = None
    return out


Kernel = collections.namedtuple("Kernel", "name arch registers shared spilled stack threads counts")


def demangle(names):
    done = subprocess.run(["c++filt", "--no-params"], input="\n".join(names), capture_output=True,
                          text=True, check=True)
    # Types of arguments follow templates all the same.
    return dict(zip(names, (re.sub(r"^void ", "", n) for n in done.stdout.split("\n"))))


def compile_kernels(nvcc, root, source, arch, folder):
    """All kernels of one .cu file; raises with nvcc's words where it doesn't compile."""
    path = f"{folder}/{source.stem}.{arch}.cubin"
    done = subprocess.run(
        [nvcc, "-std=c++17", "-O3", "-I", str(root), "-Werror", "all-warnings", "-Xptxas", "-v",
         f"-arch=sm_{arch}", "-cubin", "-o", path, str(source)],
        capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    used = usage(done.stdout + done.stderr)
    with open(path, "rb") as file:
        parts = dict(sections(file.read()))
    names = demangle(list(used))
    return [Kernel(names[n], arch, *used[n], max_threads(parts.get(f".nv.info.{n}", b"")),
                   instructions(parts[f".text.{n}"])) for n in used]


# Of a multiprocessor: bytes of shared memory (1 KiB more than asked for goes to each block).
# Source: CUDA C++ Programming Guide 13.0, technical specifications per compute capability.
SHARED_BYTES = {80: 164 * 1024, 90: 228 * 1024}


def blocks_per_sm(kernel, dynamic=0):
    """How many blocks of it a multiprocessor holds at once, by arithmetic."""
    warps = -(-kernel.threads // 32)
    registers = -(-kernel.registers // 8) * 8 * 32 * warps
    shared = kernel.shared + dynamic + 1024
    return min(32, 64 // warps, 65536 // registers, SHARED_BYTES[kernel.arch] // shared)
