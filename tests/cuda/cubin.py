"""Reads a cubin: what each kernel takes of a multiprocessor, and which instructions it consists of.

NVIDIA's disassembler isn't everywhere where its compiler is. What is asked here is little: an
instruction of sm_70 and later has 16 bytes, its operation in the low 12 bits, and the width of a
memory access in bits 73 to 75. probes.cu holds one kernel for each thing that is told apart, so that
a compiler that encodes it otherwise fails the test rather than passes it."""
import collections
import pathlib
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
EIATTR_FRAME_SIZE = 0x11
EIATTR_REGCOUNT = 0x2f
EIFMT_SVAL = 0x04
SHT_SYMTAB = 2
SHT_NOBITS = 8
EM_CUDA = 190

Section = collections.namedtuple("Section", "type info size bytes")


def text_at(data, at):
    return data[at:data.index(b"\0", at)].decode()


def sections(data):
    """Of an ELF file of 64 bits: {name: section}."""
    at, = struct.unpack_from("<Q", data, 0x28)
    size, num, names = struct.unpack_from("<HHH", data, 0x3a)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(num)]
    return {text_at(data, headers[names][4] + h[0]):
            Section(h[1], h[7], h[5], b"" if h[1] == SHT_NOBITS else data[h[4]:h[4] + h[5]])
            for h in headers}


def instructions(code):
    counts = collections.Counter()
    for low, high in struct.iter_unpack("<QQ", code):
        operation = low & 0xfff
        if operation in ACCESSES:
            counts[f"{ACCESSES[operation]}.{WIDTHS.get(high >> 9 & 7, 0)}"] += 1
        elif operation in OPERATIONS:
            counts[OPERATIONS[operation]] += 1
    return counts


def attributes(info):
    """Those of an .nv.info section that have more than two bytes: (which, bytes)."""
    at = 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == EIFMT_SVAL:
            yield attribute, info[at:at + size]
            at += size


def max_threads(info):
    for attribute, value in attributes(info):
        if attribute == EIATTR_MAX_THREADS:
            x, y, z = struct.unpack_from("<III", value)
            return x * y * z
    return 1024


def of_each(which, parts):
    """{mangled name: this attribute}, which is a number."""
    symbols, names = parts[".symtab"].bytes, parts[".strtab"].bytes
    out = {}
    for attribute, value in attributes(parts[".nv.info"].bytes):
        if attribute == which:
            symbol, number = struct.unpack("<II", value)
            out[text_at(names, struct.unpack_from("<I", symbols, 24 * symbol)[0])] = number
    return out


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


def read_kernels(data, arch):
    """All kernels of a cubin. What is spilled is not told in it: there is no spilling without a stack."""
    parts = sections(data)
    stacks, registers = of_each(EIATTR_FRAME_SIZE, parts), of_each(EIATTR_REGCOUNT, parts)
    names = demangle([n[len(".text."):] for n in parts if n.startswith(".text.")])

    def shared(n):
        static = parts.get(f".nv.shared.{n}")
        return static.size - RESERVED_BYTES[arch] if static else 0

    def threads(n):
        info = parts.get(f".nv.info.{n}")
        return max_threads(info.bytes) if info else 1024

    return {n: Kernel(names[n], arch, registers[n], shared(n), 0, stacks.get(n, 0), threads(n),
                      instructions(parts[f".text.{n}"].bytes)) for n in names}


def architecture(flags):
    """Where nvcc 12 puts it, or nvcc 13."""
    return flags & 0xff if flags & 0xff in SHARED_BYTES else flags >> 8 & 0xff


def built_kernels(path):
    """All kernels of an object file that nvcc made with --no-compress, a cubin for each architecture."""
    data = sections(path.read_bytes())[".nv_fatbin"].bytes
    found, at = {}, data.find(b"\x7fELF")
    while at >= 0:
        if struct.unpack_from("<H", data, at + 0x12)[0] == EM_CUDA:
            arch = architecture(struct.unpack_from("<I", data, at + 0x30)[0])
            found[arch] = list(read_kernels(data[at:], arch).values())
        at = data.find(b"\x7fELF", at + 1)
    return found


def compile_kernels(nvcc, root, source, arch, folder):
    """All kernels of one .cu file; raises with nvcc's words where it doesn't compile."""
    path = pathlib.Path(folder, f"{source.stem}.{arch}.cubin")
    done = subprocess.run(
        [nvcc, "-std=c++17", "-O3", "-I", str(root), "-Werror", "all-warnings", "-Xptxas", "-v",
         f"-arch=sm_{arch}", "-cubin", "-o", path, str(source)],
        capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    used = usage(done.stdout + done.stderr)
    kernels = read_kernels(path.read_bytes(), arch)
    # The reader itself: what ptxas says of each.
    assert {n: (k.registers, k.shared, k.stack) for n, k in kernels.items()} == \
        {n: (registers, shared, stack) for n, (registers, shared, _, stack) in used.items()}, \
        f"{source.name} sm_{arch}: read otherwise than ptxas says: {kernels} {used}"
    return [k._replace(spilled=used[n][2]) for n, k in kernels.items()]


# Of a multiprocessor: bytes of shared memory (1 KiB more than asked for goes to each block).
# Source: CUDA C++ Programming Guide 13.0, technical specifications per compute capability.
SHARED_BYTES = {80: 164 * 1024, 90: 228 * 1024}
# What a cubin counts to a kernel's shared memory beside its own; compile_kernels holds it against ptxas.
RESERVED_BYTES = {80: 0, 90: 1024}


def blocks_per_sm(kernel, dynamic=0):
    """How many blocks of it a multiprocessor holds at once, by arithmetic."""
    warps = -(-kernel.threads // 32)
    registers = -(-kernel.registers // 8) * 8 * 32 * warps
    shared = kernel.shared + dynamic + 1024
    return min(32, 64 // warps, 65536 // registers, SHARED_BYTES[kernel.arch] // shared)
